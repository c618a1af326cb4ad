"""The asyncio host of the protocol's machines.

- `effects`: performs effects as calls, and passes answers to the machine as events. It also ends
  the wait for a machine that gets no replies.

  - `event_queue`: passes events one by one, and runs timers and tasks.
"""
