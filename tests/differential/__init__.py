"""For random schemas, rows and predicates, a log returns the same rows as Parquet.

- `kinds`: types of columns, their values, and how SQL spells them.
- `worlds`: a schema, several logs that have this schema or can get it, and their rows.
- `predicates`: random conditions on the columns of a world.
- `compare`: writes a world to logs and to Parquet, and runs the same queries on both.

`python -m tests.differential --cases 2000 --seed 1` runs this number of predicates. The same seed
gives the same cases.
"""
