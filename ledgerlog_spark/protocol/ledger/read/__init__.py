"""Reads of a ledger.

- `reader` reads a range of entries. `batch`: its requests for several entries. `budget`: the limits
  of its requests.

  - `lac` reads the last add confirmed of a ledger.
"""
