"""A bookie's decisions and the bytes of its files, as pure functions and values.

- `ledger_gate`: accepts, refuses or defers requests, and decides when absence may be reported.
- `ledger_state`: the state of a ledger beside its entries.
- `replay_decision`: distinguishes torn from damaged records at boot.
- `record`, `record_codec`, `slot_header`, `manifest_codec`, `index_format`: docs/FORMATS.md.
- `pieces`: places of entries. `requests`: requests to storage. `settings`: its settings.
"""
