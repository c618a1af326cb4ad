"""Logs in the metadata store.

- `store`: heads, pages and transactions. `producers`: producer records, and the ledgers that they
  registered. `nodes`, `paths`: the places of all records.
- `commit_queue`: the turns of commits with conflicts.
"""
