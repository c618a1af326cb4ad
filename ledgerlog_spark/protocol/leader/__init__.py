"""The one writer of a leader log (LOGS.md#leader-logs).

- `leader`: the machine and its table. `messages`: its phases, limits, events and effects.
- `opening`: becomes the leader. `appends`: appends that are not acknowledged yet. `rolling`: its
  ledgers. `list`: its changes of the log's list. `look`: finds that the log was deleted.
- `attempts`, `inner`: delays, machines inside the machine.
- `entry`: an entry as bytes. `errors`: what ends a leader.
"""
