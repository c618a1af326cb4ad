"""Handles of ledgers that are written, read and followed.

- `writer`, `reader`: the handles of users. `creation`: the metadata of a new ledger.
- `ledger_bytes`: entries as bytes. `entry_copies`: reads every replica of an entry, for checks.
- `lac_announcer`, `follower`: announce and follow the end of a ledger that is being written.
  `known_ends`: the ends that one client has seen.
"""
