"""Batch reads: planning on the driver, reading in tasks.

- `reader`: what Spark calls. `raw_reader`: the same for one ledger (option `ledgerId`).
- On the driver: `planning` asks the cluster, `plan` decides, `time_travel` turns times into
  versions and offsets. `plan_json`: a plan as JSON.
- Which entries of a range are needed: `range_index`, `index_entries`, `leader_search`.
- In tasks: `task`, `task_rows`, `scan_range`, `committed_entries`.
"""
