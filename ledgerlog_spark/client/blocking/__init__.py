"""The client for programs without an event loop, and for Spark's workers.

- `client`, `writer`, `reader`: the calls without `await`. `derived`: how they are made from the
  coroutines; what `with` closes.
- `loop_thread`: the one event loop behind them. `add_future`: futures of appends. `batch_queue`:
  batches on their way from the loop to a thread.
"""
