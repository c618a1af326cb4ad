"""Options of `format("ledger")`.

- `table`: every option: name, type, unit, default. `values`: checked values, and the logs that they
  select. `starting_offsets`: where a read begins and ends.
- `sql_table`: where a SQL table keeps its options, and why a write never uses them.
"""
