"""Auto-recovery: the hosts of the auditor and of the replication workers.

- `audit`: the auditor, and the checks of copies.

The machines are in `protocol/autorecovery`. docs/AUTORECOVERY.md lists the rules.
`accepted` reads the entries that an operator gave up.
"""
