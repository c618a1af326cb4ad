"""A tree of nodes in memory. A test can switch on the failures of a real ensemble.

- `tree`: one session. `nodes`: the nodes that sessions share.
"""
