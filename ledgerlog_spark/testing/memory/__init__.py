"""A tree of nodes in memory, with the failures of a real ensemble at will.

- `tree`: one session. `nodes`: the nodes that sessions share.
"""
