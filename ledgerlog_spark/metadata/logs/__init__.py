"""Logs in the metadata store: heads, pages, producers, and the queue of commits."""
