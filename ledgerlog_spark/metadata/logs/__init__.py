"""Logs in the metadata store.

- `store`: heads, pages and transactions. `producers`: producer records, and the registrations of
  their ledgers. `nodes`: the nodes of a log and their paths, and the queue of writers with
  conflicts.
"""
