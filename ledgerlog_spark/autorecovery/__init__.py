"""Auto-recovery: the hosts of the auditor and of the replication workers.

- `audit`, `replicate`: the hosts of the auditor and of the workers. `vacate`: the hosts of
  vacations, and the survey before one begins.
- `composed`: all of them in one process. `daemon`: the process.

The machines are in `protocol/autorecovery`. docs/AUTORECOVERY.md lists the rules.
`events` describes what happens, for log lines. `accepted` reads the entries that an operator gave
up.
"""
