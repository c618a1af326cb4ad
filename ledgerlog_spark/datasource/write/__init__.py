"""Batch writes.

- `writer`: the interface to Spark. `job`: begins the job of a write, on the driver.
- `task`: writes batches as entries of ledgers, in tasks.
"""
