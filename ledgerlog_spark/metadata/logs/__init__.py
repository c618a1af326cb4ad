"""Logs in the metadata store.

- `store`: heads, pages and transactions. `producers`: producer records, and the ledgers that they
  registered. `nodes`, `paths`: where all that is.
- `commit_queue`: the turns of commits that were overtaken.
"""
