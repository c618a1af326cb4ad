"""Reads of a ledger.

- `reader`, `settings`: a range of entries, and limits. `lac`: how far a ledger is confirmed.
  `tally`: what replicas answered. `budget`: how much a reader may ask for.
"""
