"""How a client reaches bookies: one port, two transports, and a fake in `testing/in_process`.

- `port`: what every transport implements. `pending`, `deadlines`, `prepared_run`: what they share.
- `v2`: BookKeeper's binary protocol over TCP. `grpc`: the bookies' gRPC service, for networks
  where only gRPC passes, and for watches of the last add confirmed.
- `allocator`: keeps freed memory for the next request.

`control.proto` and its stubs describe the gRPC service. The contract of all transports is
tests/contract/test_transport.py.
"""

import os

# gRPC's own handlers crash a forked child while another thread is in a call: beside an open tail, a
# quarter of the children that were forked to start a program, such as Spark's gateway to Java, died
# before they started it. Without the handlers such a child is fine. gRPC reads the variable when it
# is first used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
