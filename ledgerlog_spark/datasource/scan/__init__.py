"""Batch reads: the driver plans a scan, and tasks read the rows.

- `reader`: the interfaces to Spark, for logs and for one ledger (`ledgerId`).
- On the driver: `planning` reads from the cluster, `plan` makes the tasks, `time_travel` converts
  times to versions and offsets. `plan_json` converts the plan to JSON for the JVM engine. `pinned`
  stores which rows a query reads, so that later queries read the same rows.
- `slice_choice` decides in which ranges tasks read slices of entries, for both engines.
- `ranges` determines which entries of a range a scan needs. `index_entries` reads the index entries
  and headers that `ranges` uses.
- In tasks: `task_rows` reads entries, and `task` converts the entries to batches.
"""
