"""Batch reads: planning on the driver, reading in tasks.

- `reader`: what Spark calls. `raw_reader`: the same for one ledger (option `ledgerId`).
- On the driver: `planning` asks the cluster, `plan` decides, `time_travel` turns times into
  versions and offsets.
- Which entries of a range are needed: `ranges` decides, `index_entries` reads what that needs.
- In tasks: `task_rows` reads entries, `task` makes batches of them.
"""
