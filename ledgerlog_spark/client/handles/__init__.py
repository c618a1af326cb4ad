"""Handles of ledgers that are written, read and followed.

- `writer`, `reader`: what people use. `creation`: a new ledger's record.
- `ledger_bytes`: entries as bytes. `entry_copies`: reads every replica of an entry, for checks.
- `lac_announcer`, `follower`: the end of a ledger that is being written, announced and followed.
  `known_ends`: the ends that one client has seen.
"""
