"""How a client reaches bookies: one port, three ways through it.

- `port`: what every transport implements.
- `v2_transport`: BookKeeper's binary protocol over TCP, by way of `v2_link` (one lane to one
  bookie: look-up, connecting, back-off) and `v2_connection` (one socket: frames out, answers in).
  Connections that stay within one machine are made by `same_host`.
- `grpc_transport`: the bookies' gRPC service, for networks where only gRPC passes, and for LACs. It
  has a `grpc_bookie` for each bookie, on a `grpc_channel`, and a `grpc_watch` for each watched LAC.
  `append_parts`: large appends, in requests that are small.
- `in_process`: straight into a storage object of this process.
- `pending`, `deadlines`, `prepared_run`: what the transports share. `memory`: keeps freed memory.
  `writing`: many pieces at once, with back-pressure in every Python.

`control.proto` and its stubs describe the gRPC service. The contract of all transports is
tests/contract/test_transport.py.
"""

import os

# gRPC's own handlers crash a forked child while another thread is in a call: beside an open tail a
# quarter of the children that only meant to start a program, as Spark's gateway to Java does, died
# before they did. Without the handlers such a child is fine. gRPC looks when it is first used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
