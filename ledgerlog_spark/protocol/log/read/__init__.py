"""Reads the state of a log.

- `versions`: reads one version, the history, the list, or the schemas. `view`: reads the state from
  which a stream continues.
"""
