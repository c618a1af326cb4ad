"""Hosts the machine of a leader log.

- `leader`: appends records and returns their positions. `host`: performs the machine's effects.
- `ledger_writer`: appends to one ledger of the leader. `entries_in_flight`: entries that are not
  acknowledged yet. `content`, `rows`: check and encode the appended records or the appended rows.
"""
