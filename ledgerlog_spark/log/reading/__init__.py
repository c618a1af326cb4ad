"""Reads listed ranges, records and rows, and follows the end of a log.

- `committed_range`: a listed range. `open_ends`: the present rows of a log, including those in the
  open ledgers of a leader log. `version_at`: the version at a given time.
- `record_log`, `record_reader`: records. `ledger_entries`, `row_cursor`: entries, decoded in
  order. `listed_rows`: rows of a listed range, checked and cut.
- `end_watch`: notifies when a log may have more rows.
"""
