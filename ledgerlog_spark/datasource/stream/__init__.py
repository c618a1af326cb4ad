"""The streaming source and sink.

- The source: `reader` is the interface to Spark. `source` is the implementation. `position`
  determines where a stream begins, and whether it can continue. `admission` determines the size of
  a micro-batch. `watched_logs`: the logs of a stream in memory, and the times of their rows.
- The sink: `writer` is the interface to Spark. `job` plans and commits on the driver.
"""
