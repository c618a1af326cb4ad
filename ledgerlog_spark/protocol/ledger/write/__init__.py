"""The one writer of a ledger.

- `writer`: appends entries, replaces failed bookies and closes the ledger. `settings`: the phases
  and limits of the writer.
- `add_pipeline`: sends and confirms the pending runs of one ensemble.
- `ensemble_change`: collects failed bookies, and makes the metadata for a change.
- `absences`: failed bookies without a replacement, for which the writer stores only the ids of
  missing entries.
"""
