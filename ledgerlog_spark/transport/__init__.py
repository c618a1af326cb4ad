"""How a client reaches bookies: one port, three ways through it.

- `port`: what every transport implements.
- `v2_transport`: BookKeeper's binary protocol over TCP, by way of `v2_link` (one lane to one
  bookie: look-up, connecting, back-off) and `v2_connection` (one socket: frames out, answers in).
- `grpc_transport`: the bookies' gRPC service, for networks where only gRPC passes.
- `in_process`: straight into a storage object of this process.
- `pending`, `deadlines`, `prepared_run`: what the transports share.

`control.proto` and its stubs describe the gRPC service. The contract of all transports is
tests/contract/test_transport.py.
"""
