"""Ledgers in the metadata store.

- `store`: records, by compare-and-swap. `ids`: new ledger ids. `layout`: paths by the cluster's
  LAYOUT.
"""
