"""The blocking API of logs, for programs without an event loop and for Spark's processes.

- `logs`: all logs, and one log. `leader`: a log that this program leads. `records`: a log that
  this program reads.
- `stream`: the tasks and the commit of a stream.
"""
