"""A ledger's metadata record in the three formats of Apache BookKeeper."""
