"""Makes `format("ledger")` known to Spark, which imports every `pyspark_*` module to find sources.

An import error here would hide all such sources, so this module imports nothing heavy.
"""

from ledgerlog_spark.datasource.source import LedgerDataSource as DefaultSource

__all__ = ["DefaultSource"]
