"""The blocking API of logs, for programs without an event loop and for Spark's processes.

- `logs`: all logs, and one log. `leader`: appends to a log. `records`: reads a log.
- `stream`: the tasks and the commit of a stream.
"""
