"""The client for programs without an event loop, and for Spark's workers.

- `client`, `writer`, `reader`: the calls without `await`. `derived`: makes them from the
  coroutines; the base of `with`.
- `loop_thread`: the one event loop of a process. `add_future`: futures of appends. `batch_queue`:
  passes batches from the loop to a thread.
"""
