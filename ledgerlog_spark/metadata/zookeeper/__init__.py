"""A tree of nodes on ZooKeeper, by kazoo."""
