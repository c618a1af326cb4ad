"""The one writer of a leader log (LOGS.md#leader-logs).

- `leader`: the machine and its table. `messages`: its phases, limits, events and effects.
- `opening`: becomes the leader. `appends`: appends that are not acknowledged yet. `rolling`: the
  leader's ledgers. `list`: its changes of the log's list. `attempts`: delays between attempts.
- `entry`: an entry as bytes.
"""
