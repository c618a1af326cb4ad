"""A bookie's decisions and the bytes of its files: functions and values without I/O.

- `ledger_gate`: decides which requests are accepted, and when a bookie may deny that an entry
  exists.
- `ledger_state`: the state of a ledger, except its entries.
- `background`: compaction and scrub.
- `release`: decides which ledgers may be deleted because their metadata no longer names the bookie.
- `replay_decision`: distinguishes torn from damaged records at boot.
- `record`, `record_codec`, `slot_header`, `manifest_codec`, `index_format`, `group_copy`: the
  formats of docs/FORMATS.md.
- `doubt`: decides whether a bookie that may have lost records may deny that an entry exists.
  `repair`: fetches lost entries from other bookies (ADR 39).
- `bookie_run`: the write modes, and the fields of a MANIFEST about a run.
- `directory_identity`: recognises an older copy of a directory, and another directory.
  `kept_identity`: the fields of a MANIFEST that a downgrade keeps.
- `disk_use`: the thresholds at which a bookie warns and becomes read-only.
- `pieces`: places of entries. `requests`: requests to storage. `settings`: settings of storage.
"""
