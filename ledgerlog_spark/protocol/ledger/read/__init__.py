"""Reads of a ledger.

- `reader`, `settings`: a range of entries, and limits. `lac`: how far a ledger is confirmed.
  `tally`: answers of replicas. `budget`: how much a reader may request.
"""
