"""Replication of one ledger (docs/PROTOCOL.md).

- `messages`: events and effects. `quorum`, `placement`: which bookies have which entries.
- `write`: the one writer. `recover`: closes a dead writer's ledger. `read`: reads entries.
- `metadata_update`: one change of the ledger metadata, until it is settled. `overload`: bookies
  that answer BUSY. `entry_batch`: entries as columns. `read_room`: the memory of several readers.
"""
