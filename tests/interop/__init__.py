"""Apache BookKeeper's Java client on our bookies, and our client on Apache's (`make interop`).

In the same scenarios, each kind of client writes, recovers and reads, on each kind of bookie. Both
clients are processes with the same line commands, so that each can be killed while its adds are in
flight.
"""
