"""A tree of nodes in memory. A test can make it fail in the ways in which a real ensemble fails.

- `tree`: one session with the tree. `nodes`: the nodes that all sessions share.
"""
