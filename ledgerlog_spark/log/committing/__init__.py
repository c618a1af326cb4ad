"""Writes ranges of rows, and commits them.

- `commits`: the calls of a job. `job`: the data that tasks and commit of one batch share.
- `staged_ledger`: a ledger that ranges are written into. `range_writer`: one range.
  `stream_ledgers`: the state that a process keeps between tasks of streams.
"""
