"""The asyncio host of the protocol's machines.

- `effects`: effects become calls, answers become events. `event_queue`: events one by one, timers,
  tasks. `stall_watch`: ends a wait for a machine that gets no replies.
"""
