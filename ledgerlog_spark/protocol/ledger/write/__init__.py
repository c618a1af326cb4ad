"""The one writer of a ledger.

- `writer`: adds, replacement of failed bookies, close. `add_pipeline`: pending runs of one
  ensemble. `ensemble_change`: which bookies failed, and their replacements.
"""
