"""Logs in the metadata store.

- `port`: what a store of logs promises. `store`: heads, pages and transactions.
- `producers`: producer records, and the ledgers that they registered. `paths`: where all that is.
- `commit_queue`: the turns of commits that were overtaken.
"""
