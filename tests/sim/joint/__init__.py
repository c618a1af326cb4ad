"""Schedules in which everything that heals a cluster runs together (AUTORECOVERY.md).

Shipped auditors mark lost bookies. Shipped workers, and a model of Apache's worker, heal ledgers.
Bookies release copies that no record names. They lose their directory, and come back in limbo. One
bookie is taken out of service. Meanwhile, writers, recoverers and readers continue.
"""
