"""Reads of a ledger's entries, and of how far it is confirmed."""
