"""Hosts the machine of a leader log.

- `leader`: appends records and returns their positions. `host`: the machine's effects and events.
- `ledger_writer`: one ledger that the leader writes. `entries_in_flight`: entries that are not
  acknowledged yet. `content`, `rows`: check and encode the appended records or the appended rows.
"""
