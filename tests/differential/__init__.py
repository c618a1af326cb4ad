"""For random schemas, rows and predicates, a log returns the same rows as Parquet.

- `kinds`: types of columns, their values, and how SQL spells them.
- `worlds`: a schema, several logs that have this schema or can get it, and their rows.
- `predicates`: random conditions on the columns of a world.
- `compare`: a world is written twice and asked twice.

`python -m tests.differential --cases 2000 --seed 1` plays as many predicates as it is told; the
same seed gives the same cases.
"""
