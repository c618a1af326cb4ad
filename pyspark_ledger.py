"""Makes `format("ledger")` known to Spark, which imports every `pyspark_*` module to find sources.

If the import of this module failed, Spark would find none of these sources. So this module imports
no large packages. For the JVM engine, Spark also runs this module in a planner worker.
"""

from typing import IO

from ledgerlog_spark.datasource.source import LedgerDataSource as DefaultSource

__all__ = ["DefaultSource", "main"]


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Answer one request of the JVM engine."""
    from ledgerlog_spark.datasource.jvm.worker import main as answer

    answer(infile, outfile)
