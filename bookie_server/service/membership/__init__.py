"""A bookie's place in the cluster.

- `registration`: announces the bookie. `session_file`: ends the session of its last run.
  `cookie_check`: whether a directory is this bookie's.
- `ledger_records`: what storage and garbage collection read of ledgers.
"""
