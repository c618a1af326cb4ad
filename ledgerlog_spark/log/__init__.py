"""Named logs over ledgers: hosts of the log's machines, and what people and Spark call.

- `logs`, `log`: all logs of a cluster, and one. `clients`: what `connect` returns.
- `driver`, `ports`, `retries`, `clock`: the host of `protocol.log`, and what it needs of others.
- `committing`, `reading`, `leader`, `maintenance`: the four things that are done with a log.
- `record_access`: leads and reads a leader log. `records`, `entry_codec`: its records, and their
  entries.
- `blocking`: the same without `await`. `picture`: a log as an SVG.
- `failpoints`: where tests make a process die or stand still.
"""
