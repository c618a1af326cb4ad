"""A bookie's process: it serves storage on two ports, and keeps its place in the cluster.

- `lifecycle`: from settings to exit code. `logging`: log lines.
- `v2`: the data plane over TCP. `grpc`: control, and all operations over gRPC. `port_claim`: their
  ports.
- `limits`: what peers may hold. `metrics`: what is measured.
- `membership`: dealings with the metadata store. `collector`: deletes ledgers that have no record
  any more.
"""
