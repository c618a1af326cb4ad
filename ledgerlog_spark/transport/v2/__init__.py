"""BookKeeper's binary protocol, version 2, over TCP."""
