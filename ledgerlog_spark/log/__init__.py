"""Named logs over ledgers: the API for programs and Spark, and the hosts of the logs' machines.

- `logs`, `log`: all logs of a cluster, and one log. `clients`: the clients that `connect` returns.
- `host`: runs the machines of `protocol.log`. `ports`, `retries`, `clock`: modules that the host
  uses.
- `committing`, `reading`, `leader`, `maintenance`: the four uses of a log.
- `records`: records of a leader log. `entry_codec`: converts records to entries, and back.
- `blocking`: the same API without `await`. `picture`: draws a log as an SVG.
- `failpoints`: places where tests kill or stop a process.
"""
