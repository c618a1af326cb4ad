"""Batch writes.

- `writer`: the interface to Spark. `job`: on the driver: the log, its schema, the commit.
- `task`: in tasks: batches to entries of ledgers.
"""
