"""A bookie's process, which serves storage on two ports and registers in the cluster.

- `process`: runs the process. `lifecycle`: starts and stops the bookie. `logging`: log lines.
- `storage_start`: the settings of the storage, and log lines about failures of the storage.
  `devices`: the free bytes of the devices. `read_only`: the reasons for which the bookie refuses
  regular adds.
- `v2`: the data plane over TCP. `grpc`: adds, reads, LACs and control calls, over gRPC.
  `port_claim`: binds ports before the servers start.
- `limits`: limits of the memory held for peers. `metrics`: counters and gauges. `admin`: the HTTP
  server, which shows the metrics and the status, and accepts changes from administrators.
- `membership`: access to the metadata store. `collector`: deletes the entries of deleted ledgers.
  `releaser`: deletes the entries of ledgers whose metadata no longer names the bookie.
  `background_clock`: starts the compactions and scrubs that are due.
- `repair`: fetches lost entries. `auto_recovery`: the auditor and a replication worker in the
  bookie's process.
"""
