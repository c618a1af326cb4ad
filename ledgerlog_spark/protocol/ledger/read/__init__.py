"""Reads of a ledger.

- `reader`: a range of entries. `lac`: how far a ledger is confirmed. `tally`: what replicas
  answered. `budget`: how much a reader may ask for.
"""
