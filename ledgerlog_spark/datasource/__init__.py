"""`format("ledger")` in Spark.

- `source`: the entry point for Spark. `configure`: settings of a session. `worker`: settings of a
  Python worker.
- `options`: parsed options. `cluster`: the client of the cluster.
- `scan`: batch reads. `write`: batch writes. `stream`: the streaming source and sink.
- `schemas`: Spark's types and the log's. `case_rule`: Spark's rule for names.
"""

from ledgerlog_spark.datasource.worker import hide_broken_pipes

hide_broken_pipes()  # a worker that serves a part of this source imports the package
