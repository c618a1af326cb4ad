"""Reads of a log.

- `versions`: one version, the history, the list, or the schemas. `view`: the state from which a
  stream continues.
"""
