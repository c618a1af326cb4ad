"""Commits of producers.

- `commit`: the transaction, and how an unknown outcome is settled. `plan`: how it changes a head.
  `phases`, `result`: its phases, and how it ended. `known`: what it leaves for the next one.
- `listing`: a commit that reads the log's list first: `merge`, `restore`.
- `epoch`: which query run may write. `current_schema`, `password_guard`: what a commit compares.
"""
