"""Options of `format("ledger")`.

- `values`: every option with its value and its check, and the logs that the options select.
  `table`: types of options, and names of options in other sources. `starting_offsets`: computes
  where a read begins and ends.
- `sql_table`: stores the options of a SQL table in its schema, and rejects writes that need these
  options.
"""
