"""Schedules with everything that heals a cluster together (AUTORECOVERY.md).

Shipped auditors mark lost bookies, shipped workers and a model of Apache's worker heal, bookies
release copies that no record names, lose their directory and come back in limbo, and one bookie is
taken out of service, while writers, recoverers and readers go on.
"""
