"""Protocol Buffers as far as BookKeeper's records need them: the binary and the text encoding."""
