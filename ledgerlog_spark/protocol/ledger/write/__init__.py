"""The one writer of a ledger.

- `writer`: adds, replacement of failed bookies, close. `settings`: its phases and limits.
- `add_pipeline`: pending runs of one ensemble.
- `ensemble_change`: which bookies failed, and the writes of the metadata.
- `absences`: failed bookies without a replacement, for which only the ids of missing entries are
  kept.
"""
