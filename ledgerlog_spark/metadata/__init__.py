"""The metadata of a cluster (everything but entries), which is changed by compare-and-swap.

- `stores`: opens all stores of one cluster.
- `ledgers`, `logs`, `registration`, `leases`: the stores, on any tree of nodes (`tree`).
- `zookeeper`: the tree of nodes in ZooKeeper; `testing/memory` has a tree in memory.
- `service_uri`: names a cluster. `store_clock`: the store's clock.
"""
