"""The handles with which users write, read and follow ledgers.

- `writer`, `reader`: the handles. `creation`: creates the metadata of a new ledger. `recovered`:
  runs the recovery of a ledger.
- `ledger_bytes`: encodes and verifies entries. `known_ends`: the ends of ledgers that one client
  has found.
- `lac_announcer`, `follower`: announce and follow the end of a ledger that is being written.
"""
