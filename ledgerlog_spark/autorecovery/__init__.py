"""Auto-recovery: the hosts of the auditor and of the replication workers.

- `audit`, `replicate`: the hosts of the auditor and of the workers. `vacate`: the hosts of
vacations, and the survey before a vacation begins.
- `composed`: runs all of these hosts in one process. `daemon`: runs them as a separate process.
- `events`: log lines about events. `accepted`: reads the entries that an operator gave up.

The machines are in `protocol/autorecovery`. docs/AUTORECOVERY.md lists the rules.
"""
