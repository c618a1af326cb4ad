"""Record batches as entries and back: the IPC stream in a ledger, statistics, schemas.

- `stream_codec`: entries of a ledger as one IPC stream. `entry_cutter`: cuts batches of any size
  into entries of about one size. `statistics`: bounds of columns.
- `schema_evolution`: which rows a log accepts. `spark_types`: Spark's schema JSON to Arrow schemas
  and to schema records, and names as Spark compares them. `conform`: converts a batch to exactly
  the required schema.
- `leader_pieces`, `leader_batches`: rows to entries of leader logs, and back.
"""
