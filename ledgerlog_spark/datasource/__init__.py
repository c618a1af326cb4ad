"""`format("ledger")` in Spark: options, planning, readers and writers.

docs/SPARK.md and docs/STREAMING.md describe what users see.

- `source`: what Spark calls first. `configure`: settings of a session. `worker`: of a worker.
- `option_table`, `options`, `log_selection`, `cluster`: what was asked, and of which cluster.
  `table_options`: where a SQL table keeps its options. `write_target`: which log a write goes to.
- Which entries a scan reads: `planning`, `plan`, `time_travel`, `range_index`, `index_entries`,
  `leader_search`; `plan_json` shows it.
- What a task reads: `batch_reader`, `raw_reader`, `scan_task`, `scan_range`, `committed_entries`,
  `task_rows`. `schemas`: Spark's types and the log's; `case_rule`: Spark's rule for names.
- What a job writes: `batch_writer`, `write_job`, `write_task`.
- Streams, the source: `stream_reader`, `ledger_stream`, `stream_start`, `starting_offsets`,
  `stream_position`, `stream_offsets`, `stream_schemas`, `admission`, `watched_logs`, `stream_lag`,
  `arrival_times`, `patience`.
- Streams, the sink: `stream_writer`, `stream_job`.
"""

from ledgerlog_spark.datasource.worker import hide_broken_pipes

hide_broken_pipes()  # a worker that serves a part of this source imports the package
