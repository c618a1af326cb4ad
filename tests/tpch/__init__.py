"""TPC-H over logs of the catalog returns the same rows as over Parquet.

- `generate`: writes the tables and the texts of the queries, in an environment with DuckDB.
- `compare`: creates the logs, and runs each query over logs and over Parquet in turn.

`make tpch` runs both, and prints a table of times. Its last line counts the queries.
"""
