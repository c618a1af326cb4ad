"""Logs in the metadata store.

- `store`: heads, pages and transactions. `producers`: producer records, and the registrations of
  their ledgers. `candidates`: clients that open or lead a log. `nodes`: the nodes of a log and
  their paths, and the queue of writers with conflicts.
"""
