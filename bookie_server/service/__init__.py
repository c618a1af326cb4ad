"""A bookie's process: it serves storage on two ports, and keeps its place in the cluster.

- `lifecycle`: from settings to exit code. `registration`, `session_file`, `cookie_check`,
  `metadata_check`: its dealings with the metadata store.
- `v2_server`, `v2_connection`, `v2_operations`, `v2_shared`, `v2_requests`: the data plane over
  TCP. `grpc_server`, `grpc_service`, `grpc_stream`, `grpc_parts`, `grpc_replies`, `turns`:
  control, and all operations over gRPC.
- `port_claim`: their ports. `storage_port`: what they need of storage. `auth`: AUTH frames.
- What peers may hold: `budget` (bytes shared fairly), `lanes` (adds, reads, control),
  `receive_memory`; `fair_slots` and `grpc_calls` (calls and watches), `connection_slots`.
  `sweeper` and `peer_watch`: which connections are closed because their peers do not move;
  `stuck_calls` and `peer_sockets`: the same for gRPC.
- `collector`, `ledger_listing`: lets go of ledgers that were deleted.
- `metrics`, `gauges`, `metrics_server`, `loop_lag`, `logging`, `exit_code`: what it reports.
"""
