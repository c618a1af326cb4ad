"""Named logs over ledgers: hosts of the log's machines, and the API for people and Spark.

- `logs`, `log`: all logs of a cluster, and one. `clients`: the clients that `connect` returns.
- `host`, `ports`, `retries`, `clock`: the host of `protocol.log`, and its dependencies.
- `committing`, `reading`, `leader`, `maintenance`: the four uses of a log.
- `records`, `entry_codec`: records of a leader log, and their entries.
- `blocking`: the same without `await`. `picture`: a log as an SVG.
- `failpoints`: places where tests kill or stop a process.
"""
