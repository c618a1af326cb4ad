"""`ledgerlog autorecovery`: the commands for auto-recovery.

- `status`: status, queue. `switch`: enable, disable, audit, delay. `run`: run.
"""
