"""Writes ranges of rows, and commits these ranges.

- `commits`: the calls of a job. `job`: the data that the tasks and the commit of a batch share.
- `staged_ledger`: a ledger that ranges are written into. `range_writer`: one range.
  `stream_ledgers`: the state that a process keeps between tasks of streams.
"""
