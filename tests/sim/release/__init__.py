"""Schedules in which bookies release ledgers while workers move copies and clients write.

The bookies run the shipped storage, collector and releaser. The metadata store, the workers and the
network are models.
"""
