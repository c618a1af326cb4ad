"""The streaming source and sink.

- The source: `reader` is what Spark calls, `source` does it. `position`: where a stream begins, and
  whether it can go on. `admission`: how much a micro-batch takes. `schemas`: its columns.
  `watched_logs`: its logs in memory, and when their rows came.
- The sink: `writer` is what Spark calls, `job` plans and commits on the driver.
"""
