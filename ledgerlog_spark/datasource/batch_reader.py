"""The batch reader that Spark sees: plans on the driver, reads in tasks (design 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ledgerlog_spark.datasource.filters import Predicate
    from ledgerlog_spark.datasource.options import ReadOptions
    from ledgerlog_spark.datasource.scan_task import ScanTask


class LogPartition(InputPartition):
    """One task of a scan; carries all that the task needs.

    Attributes:
        task: What to read.
        password: Of the ledgers.
    """

    def __init__(self, task: ScanTask, password: bytes) -> None:
        self.task = task
        self.password = password


class BatchReader(DataSourceReader):
    """Reads one or several logs.

    Spark pickles it before `partitions` runs: what that finds travels in the partitions.
    """

    def __init__(
        self, uri: str, options: ReadOptions, schema_json: str, *, parallelism: int = 1
    ) -> None:
        """A reader of the schema that Spark wants, given as JSON.

        Args:
            uri: Of the cluster.
            options: What to read.
            schema_json: Of the rows.
            parallelism: Tasks that the session runs at once, 1 when nobody said.
        """
        self._parallelism = parallelism
        self._uri = uri
        self._options = options
        self._schema_json = schema_json
        self._predicates: tuple[Predicate, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """The plan of the scan, one partition for each task.

        Raises:
            LogNotFoundError: No such log.
            VersionNotAvailableError: `versionAsOf` names a version that is gone or never was.
            ConfigurationError: Offsets that the log does not have.
            DataLossError: Offsets of rows that are gone.
        """
        from ledgerlog_spark.datasource.cluster import password_in
        from ledgerlog_spark.datasource.planning import tasks_of

        password = password_in(self._options.password_file)
        tasks = tasks_of(
            self._options,
            self._uri,
            self._predicates,
            parallelism=self._parallelism,
            password=password,
        )
        return [LogPartition(task, password) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches.

        Raises:
            DataLossError: Listed rows that no bookie has, unless `failOnDataLoss` is false.
            SchemaMismatchError: Stored rows cannot become the schema that Spark wants.
        """
        if not isinstance(partition, LogPartition):
            return iter(())  # Spark makes one empty partition out of none
        return self._read(partition)

    def _read(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        from ledgerlog_spark.arrow.spark_types import arrow_schema_of
        from ledgerlog_spark.datasource.task_rows import task_rows

        yield from task_rows(
            self._uri,
            partition.task,
            arrow_schema_of(self._schema_json),
            password=partition.password,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )


class FilteringReader(BatchReader):
    """A reader that leaves out ranges, and entries of ranges, by their statistics.

    Spark asks only for readers that override `pushFilters` to be allowed by a setting; this class
    is used where it is on.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """All filters again: statistics only rule out whole entries, Spark looks at the rows."""
        import pyarrow as pa

        from ledgerlog_spark.arrow.spark_types import arrow_schema_of
        from ledgerlog_spark.datasource.pushdown import predicates_of
        from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS

        added = METADATA_COLUMNS if self._options.include_metadata else {}
        schema = arrow_schema_of(self._schema_json)
        # Stored rows have no metadata columns: by their statistics these would be null.
        stored = pa.schema([column for column in schema if column.name not in added])
        self._predicates = predicates_of(filters, stored)
        return filters
