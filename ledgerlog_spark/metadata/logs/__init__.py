"""Logs in the metadata store.

- `store`: heads, pages and transactions. `producers`: producer records, and the registrations of
  their ledgers. `nodes`, `paths`: the nodes of a log and their paths.
- `commit_queue`: the queue of writers with conflicts.
"""
