"""`python -m tests.differential --cases 2000`: do logs return the same rows as Parquet?"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.options import positive
from tests.fixtures.spark_python import python_without_archive

ROOT = Path(__file__).parents[2]
ENGINES = ("python", "jvm")
ENGINE_SETTING = "spark.ledgerlog.engine"


def main() -> int:
    """Run the cases with both engines on a new cluster, and print the counts of each engine."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=positive, default=2_000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python_without_archive()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)

    from pyspark.sql import SparkSession

    import ledgerlog_spark as ll
    from tests.differential.compare import play
    from tests.differential.wide import play_wide

    with tempfile.TemporaryDirectory() as directory, ll.local_cluster(bookies=3):
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder.config("spark.ui.showConsoleProgress", "false")
        spark = ll.configure(ll.configure(builder).getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        try:
            for engine in ENGINES:
                spark.conf.set(ENGINE_SETTING, engine)
                seen = play(spark, Path(directory), cases=given.cases, seed=given.seed)
                print(f"{engine} engine: {seen}")
                wide = play_wide(spark, cases=given.cases // 4, seed=given.seed)
                print(f"{engine} engine, wide rows: {wide}")
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
