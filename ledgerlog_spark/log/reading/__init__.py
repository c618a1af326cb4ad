"""Reads listed ranges, records and rows, and follows the end of a log.

- `committed_range`: a listed range. `newest_view`: the present rows of a log.
  `version_at`: the version of a time. `open_ends`: the open ledgers of a leader log.
- `record_log`, `record_reader`: records. `ledger_entries`, `row_cursor`: entries, decoded in
  order. `listed_rows`: rows of a listed range, checked and cut.
- `end_watch`: notifies when a log may have more rows.
"""
