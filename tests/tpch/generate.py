"""Writes the tables of TPC-H as Parquet files, and the texts of the queries as JSON.

This program runs in an environment of its own, because only some releases of DuckDB have the
generator built in. `make tpch` makes this environment.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(folder: Path, scale: float) -> None:
    """Write all tables of this scale factor, and the queries, to the folder."""
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect()
    connection.execute(f"CALL dbgen(sf = {scale})")
    for (table,) in connection.execute("SHOW TABLES").fetchall():
        connection.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
    queries = connection.execute("SELECT query FROM tpch_queries() ORDER BY query_nr").fetchall()
    (folder / "queries.json").write_text(json.dumps([query for (query,) in queries]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
