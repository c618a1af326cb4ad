"""Reads listed ranges, records and rows, and follows the end of a log.

- `committed_range`: reads a listed range. `open_ends`: determines the present rows of a log,
  including the rows in open ledgers of a leader log. `version_at`: finds the newest version at a
  given time.
- `record_log`, `record_reader`: read records. `ledger_entries`, `row_cursor`: decode entries in
  order. `listed_rows`: checks and selects the rows of a listed range.
- `end_watch`: notifies a caller when a log may have more rows.
"""
