"""Writes ranges of rows, and commits them.

- `job`: what the tasks and the commit of one batch share. `known_logs`: what earlier commits left.
- `staged_ledger`: a ledger that ranges are written into. `range_writer`: one range.
  `stream_ledgers`: what a process that runs tasks of streams keeps from task to task.
"""
