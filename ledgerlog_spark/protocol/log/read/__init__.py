"""Reads of a log.

- `versions`: one version, the history, the list, or the schemas. `view`: the state that a stream
  needs to read on.
"""
