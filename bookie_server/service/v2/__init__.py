"""The data plane: connections of BookKeeper's protocol, version 2."""
