"""A tree of nodes on ZooKeeper, by kazoo.

- `session`: one session. `requests`: requests, results and the classes of failure.
- `watches`: watches that last. `probe`: asks an ensemble for its newest transaction.
"""
