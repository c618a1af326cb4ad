"""Logs for programs without an event loop, and for Spark's driver and workers.

- `logs`: all logs, and one. `leader`: a log that this program leads. `records`: a log that it
  reads.
- `stream`: a stream's tasks and its commit.
"""
