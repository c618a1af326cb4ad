"""The client for programs without an event loop, and for Spark's workers.

- `client`, `writer`, `reader`: the calls without `await`. `derived`: creates blocking calls from
  coroutines, and has the base class for `with`.
- `loop_thread`: the one event loop of a process. `add_future`: futures of appends. `batch_queue`:
  passes batches from the event loop to a thread.
"""
