"""Commits of producers: plan, transaction, and how an unknown outcome is settled."""
