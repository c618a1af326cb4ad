"""Apache BookKeeper's Java client on our bookies, ours on its bookies (`make interop`).

The same scenarios are played with either kind of client as writer, as the one that recovers and as
reader, on either kind of bookie. Both clients are processes that take the same line commands, so
that each can be killed while its adds are in flight.
"""
