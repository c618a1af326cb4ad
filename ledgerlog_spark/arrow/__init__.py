"""Converts record batches to entries and back, computes statistics, and checks schemas.

- `stream_codec`: encodes and decodes the entries of a ledger as one IPC stream. `entry_cutter`:
  cuts batches of any size into entries of about one size. `statistics`: computes the bounds of
  columns.
- `column_slices`: finds the bytes of each column in an entry, so that a reader can request only
  some columns. `batch_message`: finds these bytes in an encoded record batch.
- `schema_evolution`: decides which rows a log accepts. `spark_types`: converts Spark's schema JSON
  to Arrow schemas and to stored schemas, and compares names as Spark does. `conform`: converts a
  batch to exactly the required schema.
- `char_types` converts columns of type `char` and `varchar` to stored columns. `char_lengths`
  checks the lengths of their texts.
- `leader_pieces`, `leader_batches`: convert rows to entries of leader logs, and back.
"""
