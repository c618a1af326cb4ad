"""Batch reads: planning on the driver, reading in tasks.

- `reader`: the interface to Spark for logs. `raw_reader`: the same for one ledger (`ledgerId`).
- On the driver: `planning` reads from the cluster, `plan` makes the tasks, `time_travel` converts
  times to versions and offsets.
- `ranges` determines which entries of a range a scan needs. `index_entries` reads the input for
  that.
- In tasks: `task_rows` reads entries, `task` makes batches of the entries.
"""
