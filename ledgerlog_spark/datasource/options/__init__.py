"""Options of `format("ledger")`.

- `values`: every option, its value and its check, and the logs that they select. `table`: types of
  options, and other names. `starting_offsets`: where a read begins and ends.
- `sql_table`: where a SQL table keeps its options, and why a write never uses them.
"""
