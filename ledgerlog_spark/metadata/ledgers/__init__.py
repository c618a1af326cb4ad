"""Ledgers in the metadata store.

- `store`: reads and changes ledger metadata. `ids`: creates new ledger ids.
- `listing`: lists the ids of ledgers. `walk`: reads the metadata of many ledgers.
- `layout`: the layout of a cluster, which determines the paths of its ledgers.
"""
