"""The one writer of a leader log (LOGS.md#leader-logs).

- `leader`: the machine. `phases`: its table. `messages`: events and effects. `settings`: limits.
- `opening`: becomes the leader. `appends`: appends that are not acknowledged yet. `rolling`: its
  ledgers. `list`: its changes of the log's list. `look`: finds that the log was deleted.
- `attempts`, `inner`, `tokens`: delays, machines inside the machine, tokens of changes.
- `entry`: an entry as bytes. `errors`: what ends a leader.
"""
