"""The one writer of a ledger.

- `writer`: adds, replacement of failed bookies, close. `add_pipeline`: runs on their way to one
  ensemble. `ensemble_change`: which bookies failed, and what replaces them.
"""
