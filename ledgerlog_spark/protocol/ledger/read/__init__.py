"""Reads of a ledger.

- `reader`: a range of entries. `batch`: its requests for several entries. `budget`: limits of a
  reader, and how much it may request. `lac`: how far a ledger is confirmed.
"""
