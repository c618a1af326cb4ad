"""The machines of auto-recovery. docs/AUTORECOVERY.md lists the rules.

- `audit`: finds ledgers that lack copies, and puts them in queues.
- `replicate`: copies the entries of one ledger, and stores the bookies that hold them in the
  metadata of the ledger.
- `vacate`: moves all copies of a bookie to other bookies, when an operator takes the bookie out of
  service.
"""
