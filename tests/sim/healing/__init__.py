"""Schedules in which replication workers heal ledgers, while clients write and bookies release.

The jobs are the shipped `LedgerReplication`. Bookies run the shipped storage, collector and
releaser. The metadata store, the network, the auditor and Apache's worker are models.
"""
