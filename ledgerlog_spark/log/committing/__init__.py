"""Writes ranges of rows, and commits these ranges.

- `commits`: the calls of a job. `job`: the data that the tasks and the commit of a batch share.
- `schema_commits`: commits a changed schema, without rows. `columns`: computes the changed schema.
- `new_log`: deletes the log that a failed job created.
- `range_writer`: writes a range into a ledger. `stream_ledgers`: the state that a process stores
  between tasks of streams.
"""
