"""A tree of nodes in memory. A test can cause the failures that a real ensemble has.

- `tree`: one session with the tree. `nodes`: the nodes that all sessions share.
"""
