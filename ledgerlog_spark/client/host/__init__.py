"""The asyncio host of the protocol's machines.

- `effects`: effects become calls, answers become events; the wait for a machine's result ends when
  it gets no replies. `event_queue`: events one by one, timers, tasks.
"""
