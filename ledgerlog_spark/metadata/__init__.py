"""The metadata of a cluster: all its data except entries. Changes use compare-and-swap.

- `stores`: opens all stores of one cluster. `clusters`: creates and deletes a cluster.
- `ledgers`, `logs`, `registration`, `known_bookies`, `accepted_losses`, `leases`,
  `replication` (auto-recovery), `topologies`: the stores, which use any tree of nodes (`tree`).
  `held_nodes`: nodes that belong to one session at a time. `settled_writes`: writes that, after a
  lost answer, find out whether they happened. `ordered`: requests that run at the same time, with
  their results in order.
- `zookeeper`: the tree of nodes in ZooKeeper; `testing/memory` has a tree in memory.
- `service_uri`: the address of a cluster's metadata. `store_clock`: estimates the store's clock.
"""
