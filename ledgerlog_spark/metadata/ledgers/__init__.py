"""Ledgers in the metadata store: their records, ids and paths."""
