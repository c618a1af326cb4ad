"""Makes `format("ledger")` known: Spark imports every `pyspark_*` module in a look-up process.

An import error here would hide all sources found this way, so nothing heavy is imported.
"""

from ledgerlog_spark.datasource.source import LedgerDataSource as DefaultSource

__all__ = ["DefaultSource"]
