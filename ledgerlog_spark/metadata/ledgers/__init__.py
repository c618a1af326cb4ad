"""Ledgers in the metadata store.

- `store`: reads and changes ledger metadata. `ids`: new ledger ids. `layout`: paths of ledgers.
"""
