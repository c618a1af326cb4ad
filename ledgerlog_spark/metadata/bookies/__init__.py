"""Bookies in the metadata store: who is available, and cookies."""
