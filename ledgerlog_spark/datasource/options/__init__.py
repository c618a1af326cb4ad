"""Options of `format("ledger")`.

- `table`: every option: name, type, unit, default. `values`: checked values.
- `log_selection`: which logs a read is of. `starting_offsets`: where it begins and ends.
- `sql_table`: where a SQL table keeps its options. `write_target`: which log a write goes to.
"""
