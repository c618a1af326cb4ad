"""`format("ledger")`: what Spark asks for schemas, readers and writers.

Imported by every look-up of a Python source, so it imports pyspark and nothing else that is heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ledgerlog_spark.datasource.options.values import SourceOptions

_NAMES_WHAT_TO_READ = frozenset({"path", "paths", "log", "logs", "logpattern", "ledgerid"})


class LedgerDataSource(DataSource):
    """Reads and writes logs; reads raw ledgers.

    Attributes:
        configured_service_uri: What `configure(spark)` set for its session, None otherwise.
        configured_parallelism: Tasks that the session runs at once, as `configure(spark)` saw it;
            1 otherwise.
    """

    configured_service_uri: ClassVar[str | None] = None
    configured_parallelism: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ledger"

    def schema(self) -> StructType:
        """The columns of the log's newest or chosen version.

        Raises:
            ConfigurationError: A bad option, before any I/O.
            LogNotFoundError: No such log.
            SchemaMismatchError: The log has no columns yet.
        """
        from ledgerlog_spark.datasource.options.sql_table import with_table_options
        from ledgerlog_spark.datasource.options.values import table_options
        from ledgerlog_spark.datasource.scan.planning import schema_of
        from ledgerlog_spark.errors import VersionNotAvailableError

        given = dict(self.options)
        options = self._options(given)
        try:
            schema_json = schema_of(options.for_read(), self._service_uri(options))
        except VersionNotAvailableError as error:
            # Spark asks the same for streams, which have no use for a version at all.
            named = "timestampAsOf" if "timestamp_as_of" in options.given else "versionAsOf"
            raise VersionNotAvailableError(
                f'{error.message.rstrip(".")}. With spark.readStream leave "{named}" out.',
                **error.fields,
            ) from error
        return _struct(with_table_options(schema_json, table_options(given)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of a snapshot that is fixed when it is planned.

        Raises:
            ConfigurationError: A bad option, before any I/O.
        """
        from ledgerlog_spark.datasource.scan import raw_reader
        from ledgerlog_spark.datasource.scan import reader as batch_reader

        options = self._options(self._with_table_options(schema))
        read = options.for_read()
        uri = self._service_uri(options)
        rows = self._rows_schema(schema)
        if read.ledger_id is not None:
            return raw_reader.RawReader(uri, read, rows)
        return batch_reader.BatchReader(uri, read, rows, parallelism=self.configured_parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A streaming reader; with bad options one that fails with their error when it is used.

        Spark 4.3 hides an error that is raised here behind an UnboundLocalError of its own.
        """
        from ledgerlog_spark.datasource.stream.reader import FailedStreamReader, LedgerStreamReader
        from ledgerlog_spark.errors import LedgerLogError

        try:
            options = self._options(self._with_table_options(schema))
            return LedgerStreamReader(
                self._service_uri(options),
                options.for_stream(),
                self._rows_schema(schema),
                parallelism=self.configured_parallelism,
            )
        except LedgerLogError as error:
            return FailedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer of one commit.

        Raises:
            ConfigurationError: A bad option, or no path that names the log; before any I/O.
            SchemaMismatchError: Rows of this schema cannot be stored in the log.
            LogNotFoundError: No such log, and `createIfMissing` is false.
        """
        from ledgerlog_spark.datasource.write.writer import BatchWriter

        options = self._options_of_write(overwrite=overwrite, streams=False)
        rows = self._rows_schema(schema)
        return BatchWriter(
            self._service_uri(options), options.for_write(), rows, overwrite=overwrite
        )

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A writer of one micro-batch; Spark also makes one to commit it.

        Raises:
            ConfigurationError: A bad option, or no path that names the log; before any I/O.
            SchemaMismatchError: Rows of this schema cannot be stored in the log.
            LogNotFoundError: No such log, and `createIfMissing` is false.
        """
        from ledgerlog_spark.datasource.stream.writer import StreamWriter

        options = self._options_of_write(overwrite=overwrite, streams=True)
        rows = self._rows_schema(schema)
        return StreamWriter(
            self._service_uri(options), options.for_stream_write(), rows, overwrite=overwrite
        )

    def _with_table_options(self, schema: StructType) -> dict[str, str]:
        """The options given; those of the table too, when nothing given names what to read."""
        from ledgerlog_spark.datasource.options.sql_table import table_options_in

        given = dict(self.options)
        if _NAMES_WHAT_TO_READ & {key.lower() for key in given}:
            return given
        return {**table_options_in(schema.json()), **given}

    def _options_of_write(self, *, overwrite: bool, streams: bool) -> SourceOptions:
        """The statement's own options; the schema of its rows names no log."""
        from ledgerlog_spark.datasource.options.write_target import check_target

        given = dict(self.options)
        options = self._options(given)
        check_target(given, overwrite=overwrite, streams=streams)
        options.check_mode(overwrite=overwrite)
        return options

    def _rows_schema(self, schema: StructType) -> str:
        """The schema as JSON, without anything of ours that it may carry."""
        from ledgerlog_spark.datasource.options.sql_table import without_table_options

        return without_table_options(schema.json())

    def _options(self, given: dict[str, str]) -> SourceOptions:
        from ledgerlog_spark.datasource.options.values import SourceOptions

        return SourceOptions.parse(given)

    def _service_uri(self, options: SourceOptions) -> str:
        from ledgerlog_spark.composition import service_uri

        return service_uri(options.metadata_service_uri, self.configured_service_uri)


def _struct(schema_json: str) -> StructType:
    import json

    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_json))
