"""Batch reads: planning on the driver, reading in tasks.

- `reader`: the interface to Spark. `raw_reader`: the same for one ledger (option `ledgerId`).
- On the driver: `planning` reads from the cluster, `plan` decides, `time_travel` converts times to
  versions and offsets.
- Which entries of a range are needed: `ranges` decides, `index_entries` reads the input for that.
- In tasks: `task_rows` reads entries, `task` makes batches of them.
"""
