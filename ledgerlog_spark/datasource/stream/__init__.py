"""The streaming source and sink.

- The source: `reader` is what Spark calls, `source` does it. `start`, `offsets`, `position`: where
  a stream begins, and whether it can go on. `admission`: how much a micro-batch takes. `schemas`:
  its columns. `watched_logs`: its logs in memory. `lag`, `arrival_times`: what progress reports
  show. `patience`: retries of requests that may succeed later.
- The sink: `writer` is what Spark calls, `job` commits on the driver.
"""
