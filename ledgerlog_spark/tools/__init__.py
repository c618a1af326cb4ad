"""The code of the commands with which operators check ledgers and logs.

No tool fences, seals or recovers a ledger.

- `record_check`: finds faults in a ledger's metadata. `held_copies`: finds entries with too few
  copies, according to the lists that bookies send. `ledger_check`: the checks of `record_check` and
  `held_copies`, for one ledger or all ledgers.
- `listing_check`: finds faults in the head and the pages of a log. `log_check`: the checks of
  `listing_check` for logs, and the owners of all ledgers. `findings`: the findings of all checks.
- `copies`: reads each copy of the entries of a ledger, and compares the copies.
- `exported_record`: the file with the metadata of one ledger, and the conditions of its import.
- `recovery_status`: reads what auto-recovery does, and why a ledger is not healed.
  `loss_acceptance`: gives up entries that auto-recovery could not read.
- `probes`: writes and reads a new ledger, to test a cluster.
"""
