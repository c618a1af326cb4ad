"""Commits of producers.

- `commit`: a head transaction with a producer, and how an unknown outcome is settled.
- `plan`: how a commit changes a head. `result`: how a commit ended, and the state for the
  producer's next commit.
- `merge`, `restore`: commits with plans that read the log's list.
- `epoch`: which query run may write.
"""
