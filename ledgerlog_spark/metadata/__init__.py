"""The compare-and-swap store of everything that is not an entry.

- `stores`: opens all stores of one cluster. `ports`: their common interface.
- `ledgers`, `logs`, `bookies`, `leases`: the stores, written once over a tree of nodes (`tree`).
- `zookeeper`: that tree in ZooKeeper; `testing/memory` is the one in memory.
- `service_uri`: names a cluster. `store_clock`: the store's clock.
"""
