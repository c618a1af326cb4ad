"""Named logs over ledgers: hosts of the machines of logs, and the API for programs and Spark.

- `logs`, `log`: all logs of a cluster, and one log. `clients`: the clients that `connect` returns.
- `host`, `ports`, `retries`, `clock`: the host of `protocol.log`, and its dependencies.
- `committing`, `reading`, `leader`, `maintenance`: the four uses of a log.
- `records`, `entry_codec`: records of a leader log, and their entries.
- `blocking`: the same API without `await`. `picture`: a log as an SVG.
- `failpoints`: places where tests kill or stop a process.
"""
