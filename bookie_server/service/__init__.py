"""A bookie's process: serves storage on two ports and registers in the cluster.

- `lifecycle`: from settings to exit code. `logging`: log lines.
- `v2`: the data plane over TCP. `grpc`: control, and all operations over gRPC.
  `port_claim`: binds ports before the servers start.
- `limits`: limits of the memory held for peers. `metrics`: counters and gauges.
- `membership`: access to the metadata store. `collector`: deletes the entries of deleted ledgers.
"""
