"""The compare-and-swap store of everything that is not an entry, in memory and on ZooKeeper.

`port.py` says what stores promise, `stores.open_metadata` opens those of a cluster. All of them are
written once, on a tree of nodes (`metadata/tree.py`) with two implementations.
"""
