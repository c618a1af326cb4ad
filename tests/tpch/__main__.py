"""`python -m tests.tpch --python DIR/bin/python`: do logs return the rows of Parquet?"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.options import above_zero, positive
from tests.fixtures.spark_python import python_without_archive

ROOT = Path(__file__).parents[2]
GENERATE_SECONDS_MAX = 600


def main() -> int:
    """Run all queries on a separate cluster and session. The last line counts the queries."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", required=True, help="a Python with DuckDB 1.1.3")
    arguments.add_argument("--scale", type=above_zero, default=0.1, help="scale factor")
    arguments.add_argument("--rounds", type=positive, default=3, help="each time is their median")
    given = arguments.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python_without_archive(
        imports_first=False
    )
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)

    from pyspark.sql import SparkSession

    import ledgerlog_spark as ll
    from tests.tpch.compare import MEASURED, compare, load

    with tempfile.TemporaryDirectory() as directory, ll.local_cluster(bookies=3):
        folder = Path(directory)
        subprocess.run(
            [given.python, str(Path(__file__).with_name("generate.py")), directory,
             str(given.scale)],
            check=True, timeout=GENERATE_SECONDS_MAX,
        )  # fmt: skip
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder.config("spark.ui.showConsoleProgress", "false")
        builder.config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        builder.config("spark.driver.memory", "2g")
        spark = ll.configure(ll.configure(builder).getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        try:
            loaded = load(spark, folder)
            queries = compare(spark, folder, rounds=given.rounds)
        finally:
            spark.stop()
    print(f"8 tables as logs: {loaded:.1f} s\n\n| query | rows | {' | '.join(MEASURED)} |")
    print("|---|---|---|---|")
    for query in queries:
        times = " | ".join(f"{query.seconds[name]:.2f} s" for name in MEASURED)
        print(f"| {query.number} | {query.rows:,} | {times} |")
    equal = sum(query.is_equal for query in queries)
    sums = ", ".join(
        f"{sum(query.seconds[name] for query in queries):.1f} s over {name}" for name in MEASURED
    )
    print(f"{len(queries)} queries, {equal} with the rows of Parquet; {sums}")
    return 0 if equal == len(queries) else 1


if __name__ == "__main__":
    sys.exit(main())
