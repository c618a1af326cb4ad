"""TPC-H over logs of the catalog gives the rows that the same tables in Parquet give.

- `generate`: writes the tables and the texts of the queries, in an environment with DuckDB.
- `compare`: makes the logs, and runs each query over logs and over Parquet in turn.

`make tpch` runs both, and prints a table of times. Its last line counts the queries.
"""
