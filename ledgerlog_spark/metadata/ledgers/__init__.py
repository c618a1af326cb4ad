"""Ledgers in the metadata store.

- `store`: reads and changes ledger metadata. `ids`: new ledger ids.
- `layout`: the layout of a cluster, which determines the paths of its ledgers.
"""
