"""Ledgers in the metadata store.

- `store`: reads and changes ledger metadata. `ids`: new ledger ids. `layout`: how paths are formed.
"""
