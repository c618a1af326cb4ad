"""The machines of auto-recovery. docs/AUTORECOVERY.md lists the rules.

- `audit`: finds ledgers that lack copies, and puts them in queues.
- `replicate`: copies the entries of one ledger, and names the bookies that hold them.
- `vacate`: moves all copies of a bookie away, for an operator who takes it out of service.
"""
