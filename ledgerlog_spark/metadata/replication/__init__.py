"""The stores of auto-recovery, which the auditor, the workers and the commands share.

- `ports`: the interfaces of the stores, without paths.
- `marks`: Apache's queue of ledgers with lost bookies. `locks`: the lock of each ledger. `switch`:
  the settings for the whole cluster. `election`: the election of the auditor. `check_times`: the
  times of the auditor's checks. Apache's daemons use the same nodes.
- `notes`: holes, moves, unreadable entries and attempts. `vacations`: bookies that are taken out of
  service.
  `reports`: the progress of workers. Only ledgerlog reads and writes these nodes.
- `stores`: all of these stores of one cluster.
- `identities`: the versions that show whether a bookie was replaced or may have lost entries.
- `guarded`: deletions under a lock. `decoding`: the error for damaged nodes.
"""
