"""Batch writes.

- `writer`: what Spark calls. `job`: on the driver: the log, its schema, the commit.
- `task`: in tasks: batches to entries of ledgers.
"""
