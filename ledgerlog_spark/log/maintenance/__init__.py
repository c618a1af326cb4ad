"""Keeps a log small, and checks it.

- `log_maintenance`: retention, truncation, merging, restoring. `check`: replicas and orphaned
  ledgers.
- `sweeper`: deletes what no version lists. `sweep_memory`: what passes remember. `older_ledgers`:
  seals what replaced query runs left open.
"""
