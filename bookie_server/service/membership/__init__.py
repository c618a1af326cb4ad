"""A bookie's membership of the cluster.

- `registration`: announces the bookie, and ends the session of its previous process.
- `cookie_check`: verifies that a directory belongs to this bookie.
- `directory_changes`: adds empty directories to a bookie, and removes lost directories.
- `directory_record`: detects an older copy of the directory, and a directory that is not the
  bookie's.
- `ledger_records`: reads ledger metadata for storage and garbage collection.
- `vacation`: follows the vacation of the bookie, while an operator takes it out of service.
"""
