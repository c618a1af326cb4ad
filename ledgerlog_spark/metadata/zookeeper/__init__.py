"""A tree of nodes on ZooKeeper, by kazoo.

- `session`: one session. `requests`: requests, results and the classes of failure.
- `watches`: lasting watches. `probe`: reads the newest transaction id of an ensemble.
"""
