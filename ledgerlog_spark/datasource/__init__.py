"""`format("ledger")` in Spark.

- `source`: the entry point for Spark. `configure`: settings of a session. `worker`: settings of a
  Python worker.
- `jar`: the jar of the JVM engine. `jvm`: plans scans for this engine. `catalog`: answers the
  requests of this engine's catalog, whose tables are logs.
- `options`: parsed options. `cluster`: the client of the cluster.
- `scan`: batch reads. `write`: batch writes. `stream`: the streaming source and sink.
- `skipping`: uses the statistics of the log to find the entries that a query does not need.
- `schemas`: the schema that a scan shows, and Spark's rule for upper and lower case in names.
"""

from ledgerlog_spark.datasource.worker import hide_broken_pipes

hide_broken_pipes()  # each Python worker that runs a part of this source imports the package
