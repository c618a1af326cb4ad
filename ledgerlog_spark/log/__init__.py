"""Named logs over ledgers: hosts of the log's machines, and what people and Spark call.

- `logs`, `log`: all logs of a cluster, and one. `blocking`, `blocking_upkeep`, `blocking_stream`:
  the same without `await`. `clients`: what `connect` gives.
- `driver`, `ports`, `clock`: the host of `protocol/log_*.py` and what it needs of others.
- Committing: `job`, `range_writer`, `staged_ledger`, `stream_ledgers`, `older_ledgers`,
  `known_logs`, `retries`.
- Reading what is listed: `committed_range`, `begun_range`, `newest_view`, `open_ends`,
  `version_at`, `end_watch`, `picture`.
- Keeping it small: `log_upkeep`, `sweeper`, `sweep_memory`, `check`.
- Leading a log: `leader`, `leader_host`, `leader_writer`, `leader_content`, `leader_rows`,
  `entries_in_flight`, `leader_entry_codec`, `blocking_leader`.
- Reading a leader log: `record_log`, `record_access`, `record_reader`, `ledger_entries`,
  `row_cursor`, `records`, `blocking_records`.
- `failpoints`: where tests make a process die or stand still.
"""
