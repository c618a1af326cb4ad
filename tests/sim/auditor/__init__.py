"""Auditors and checkers of copies in a small cluster: bookies, a store with outages, and workers.

The machines are those that ship. The store, the bookies and the workers are models.
"""
