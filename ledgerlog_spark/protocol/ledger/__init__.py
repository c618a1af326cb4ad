"""Replication of one ledger (docs/PROTOCOL.md).

- `messages`: events and effects. `quorum`: the bookies of an entry.
- `write`: the one writer. `recover`: closes a dead writer's ledger. `read`: reads entries.
- `metadata_update`: repeats a change of the ledger metadata until its outcome is known. `overload`:
  retries adds that bookies answered with BUSY. `entry_batch`: entries stored as columns.
  `read_room`: limits the memory of several readers. `slices`: the parts of entries that a reader
  needs. `identities`: shows whether another bookie has taken over the id of a bookie.
"""
