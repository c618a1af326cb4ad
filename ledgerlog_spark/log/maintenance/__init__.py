"""Deletes, merges and restores rows of a log, and checks the log.

- `log_maintenance`: retention, truncation, merging, restoring. `check`: finds missing copies and
  orphaned ledgers.
- `sweeper`: deletes ledgers and pages that no version lists. `sweep_memory`: stores results of
  earlier passes. `older_ledgers`: seals ledgers of replaced query runs.
"""
