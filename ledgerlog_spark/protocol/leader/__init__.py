"""The one writer of a leader log (LOGS.md#leader-logs).

A leader has these phases. It accepts appends only while it is LEADING:

    NEW
     │  Start: claim the log (LOGS.md#J14), seal its open ledgers, list a new one (LOGS.md#J1)
    OPENING ── failed, timed out or given up ─────────────────────────────────┐
     │  the list has the new ledger instead of the sealed ledgers             │
    LEADING ── deposed, log deleted, no attempts left (LOGS.md#J12), given up ┤
     │  CloseRequested: no more appends are accepted                          │
    CLOSING ── for the same reasons ──────────────────────────────────────────┤
     │  all appends are acknowledged, all ledgers are closed and listed       │
    CLOSED                                                                 STOPPED

A LEADING leader rolls to a next ledger in these steps:

    create the next ledger, when the list has only the current ledger (LOGS.md#J5)
     │
    list the next ledger; a failed change is repeated unchanged (LOGS.md#J4)
     ├─ the current ledger works: acknowledge its appends (LOGS.md#J7)
     └─ the current ledger is broken: close it, if that is not done yet (LOGS.md#J8)
     │
    switch: the next ledger becomes the current ledger, and gets the appends that wait
     │
    close the old ledger, if it is still open, and make it an item of the list (LOGS.md#J5)

A ledger that another client fenced is broken too. The leader does not close such a ledger: it
checks whether it still leads the log, and then recovers the ledger (LOGS.md#J15).

- `leader`: the machine and its table of handlers. `messages`: its phases, limits, events and
  effects.
- `opening`: makes a client the leader. `claim`: stores the claim of an opener in the head.
  `candidacy`: maintains the candidate node of a client.
- `standing`: checks after a fence whether the leader still leads. `look`: reads the head after each
  change. `appends`: appends that are not acknowledged yet.
- `rolling`: the ledgers of a leader. `list`: the changes that a leader makes to the log's list.
- `attempts`: delays between attempts, and deletions of ledgers.
- `entry`: encodes and decodes an entry.
"""
