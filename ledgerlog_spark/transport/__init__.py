"""Transports to bookies: an interface and two implementations. `testing/in_process` has a fake.

- `port`: the interface of every transport. `pending`, `deadlines`, `prepared_run`: shared code.
- `v2`: BookKeeper's binary protocol over TCP. `grpc`: the bookies' gRPC service, for networks that
  allow only gRPC, and for watches of the last add confirmed.
- `allocator`: keeps freed memory for the next request.

`control.proto` and its stubs describe the gRPC service. tests/contract/test_transport.py is the
contract of all transports.
"""

import os

# If another thread is in a call when the process forks, gRPC's fork handlers crash the child. For
# example, when a process that followed a log forked children to start Spark's gateway to Java, a
# quarter of these children died before the gateway started. Without the handlers, such a child
# works. gRPC reads this variable when gRPC is first used, so it must be set before.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
