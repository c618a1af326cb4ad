"""A bookie's place in the cluster.

- `registration`: announces the bookie. `session_file`: ends the session of its last run.
  `cookie_check`: whether a directory is this bookie's.
- `metadata_check`, `ledger_listing`: what storage and garbage collection ask the metadata store.
"""
