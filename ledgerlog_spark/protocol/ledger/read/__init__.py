"""Reads of a ledger.

- `reader`: reads a range of entries. `batch`: its requests for several entries. `budget`: the
  limits of its requests. `tally`: the answers of the bookies about one entry.
- `lac`: reads the last add confirmed of a ledger.
"""
