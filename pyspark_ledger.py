"""Makes `format("ledger")` known to Spark, which imports every `pyspark_*` module to find sources.

An import error here would hide all such sources, so this module imports nothing heavy. Spark also
runs this module in a planner worker, for the JVM engine.
"""

from typing import IO

from ledgerlog_spark.datasource.source import LedgerDataSource as DefaultSource

__all__ = ["DefaultSource", "main"]


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Answer one request of the JVM engine."""
    from ledgerlog_spark.datasource.jvm.worker import main as answer

    answer(infile, outfile)
