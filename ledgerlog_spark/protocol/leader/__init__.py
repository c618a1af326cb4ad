"""The one writer of a leader log (LOGS.md#leader-logs).

- `leader`: the machine and its table. `messages`: its phases, limits, events and effects.
- `opening`: makes a client the leader. `appends`: appends that are not acknowledged yet.
- `rolling`: the ledgers of a leader. `list`: the changes that a leader makes to the log's list.
- `attempts`: delays between attempts.
- `entry`: an entry as bytes.
"""
