"""Commits of producers.

- `commit`: changes a head and a producer record in one transaction. If the outcome is unknown, it
  finds out whether the transaction happened.
- `plan`: computes how a commit changes a head. `result`: how a commit ended, and the state for the
  producer's next commit.
- `merge`, `restore`: commits with plans that read the log's list.
- `epoch`: determines which query run may write.
"""
