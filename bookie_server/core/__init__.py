"""A bookie's decisions and the bytes of its files, as pure functions and values.

- `ledger_gate`: which request is accepted, refused or waits, and when absence may be said.
- `ledger_state`: what is known of a ledger.
- `replay_decision`: torn or damaged, and what a boot makes of it.
- `record`, `record_codec`, `slot_header`, `manifest_codec`, `index_format`: docs/FORMATS.md.
- `pieces`: which entries lie where. `requests`, `settings`: what storage is asked and told.
"""
