"""Record batches as entries and back: the IPC stream in a ledger, statistics, schemas.

- `stream_codec`: entries of a ledger as one IPC stream. `entry_cutter`, `entry_splitter`: batches
  of any size as entries of about one size. `statistics`: bounds of columns.
- `schema_evolution`: which rows a log takes. `spark_types`: Spark's schema JSON to Arrow's and to a
  log's schema record. `names`: names as Spark compares them. `conform`: a batch
  with exactly the schema that is asked for.
- `leader_pieces`, `leader_batches`: rows to entries of leader logs, and back.
"""
