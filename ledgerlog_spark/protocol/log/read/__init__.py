"""Reads of a log.

- `versions`: one version, or the history. `view`: what a stream needs to read on.
- `floor`: the lowest ledger that the log lists.
"""
