"""`format("ledger")` in Spark.

- `source`: what Spark calls first. `configure`: settings of a session. `worker`: of a worker.
- `options`: what was asked. `cluster`: of which cluster.
- `scan`: batch reads. `write`: batch writes. `stream`: the streaming source and sink.
- `schemas`: Spark's types and the log's. `case_rule`: Spark's rule for names.
"""

from ledgerlog_spark.datasource.worker import hide_broken_pipes

hide_broken_pipes()  # a worker that serves a part of this source imports the package
