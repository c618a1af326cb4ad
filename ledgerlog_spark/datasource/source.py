"""`format("ledger")`: the schemas, readers and writers for Spark.

Every look-up of a Python source imports it, so it imports pyspark and nothing else that is heavy.
"""

from __future__ import annotations

import json
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
        configured_service_uri: Set by `configure(spark)` for its session, otherwise None.
        configured_parallelism: Tasks that the session runs concurrently, determined by
            `configure(spark)`; otherwise 1.
    """

    configured_service_uri: ClassVar[str | None] = None
    configured_parallelism: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ledger"

    def schema(self) -> StructType:
        """The columns of the log's newest or chosen version, or of a ledger's entries."""
        from pyspark.sql.types import StructType

        from ledgerlog_spark.datasource.cluster import logs_at
        from ledgerlog_spark.datasource.options.sql_table import with_table_options
        from ledgerlog_spark.datasource.options.values import table_options
        from ledgerlog_spark.datasource.scan import planning
        from ledgerlog_spark.datasource.schemas import raw_schema
        from ledgerlog_spark.errors import VersionNotAvailableError

        given = dict(self.options)
        options = self._options(given)
        read = options.for_read()
        uri = self._service_uri(options)
        try:
            if read.ledger_id is not None:
                schema_json = raw_schema(read.columns)
            else:
                schema_json = planning.schema_of(logs_at(uri), read)
        except VersionNotAvailableError as error:
            # Spark makes the same call for streams, which have no version.
            named = "timestampAsOf" if "timestamp_as_of" in options.given else "versionAsOf"
            raise VersionNotAvailableError(
                f'{error.message.rstrip(".")}. With spark.readStream leave "{named}" out.',
                **error.fields,
            ) from error
        struct = json.loads(with_table_options(schema_json, table_options(given)))
        return StructType.fromJson(struct)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of a snapshot that is fixed when it is planned."""
        from ledgerlog_spark.datasource.scan.raw_reader import RawReader
        from ledgerlog_spark.datasource.scan.reader import BatchReader

        options = self._options(self._with_table_options(schema))
        read = options.for_read()
        uri = self._service_uri(options)
        rows = self._rows_schema(schema)
        if read.ledger_id is not None:
            return RawReader(uri, read, rows)
        return BatchReader(uri, read, rows, parallelism=self.configured_parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A streaming reader; with invalid options, its first use raises their error.

        Spark 4.3 hides an error that is raised here: it raises an UnboundLocalError instead.
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
        """A batch writer of one commit."""
        from ledgerlog_spark.datasource.write.writer import BatchWriter

        return BatchWriter(*self._of_write(schema, overwrite=overwrite), overwrite=overwrite)

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A writer of one micro-batch; Spark creates another one to commit it."""
        from ledgerlog_spark.datasource.stream.writer import StreamWriter

        of_write = self._of_write(schema, overwrite=overwrite, streams=True)
        return StreamWriter(*of_write, overwrite=overwrite)

    def _with_table_options(self, schema: StructType) -> dict[str, str]:
        """The given options, and those of the table if none of them names a log or ledger."""
        from ledgerlog_spark.datasource.options.sql_table import table_options_in

        given = dict(self.options)
        if _NAMES_WHAT_TO_READ & {key.lower() for key in given}:
            return given
        return {**table_options_in(schema.json()), **given}

    def _of_write(
        self, schema: StructType, *, overwrite: bool, streams: bool = False
    ) -> tuple[str, SourceOptions, str]:
        """Service URI, options and rows of a write; the schema of its rows names no log."""
        from ledgerlog_spark.datasource.options.sql_table import check_target

        given = dict(self.options)
        options = self._options(given)
        check_target(given, overwrite=overwrite, streams=streams)
        options.check_mode(overwrite=overwrite)
        chosen = options.for_stream_write() if streams else options.for_write()
        return self._service_uri(options), chosen, self._rows_schema(schema)

    def _rows_schema(self, schema: StructType) -> str:
        """The schema as JSON, without metadata that this source added."""
        from ledgerlog_spark.datasource.options.sql_table import without_table_options

        return without_table_options(schema.json())

    def _options(self, given: dict[str, str]) -> SourceOptions:
        from ledgerlog_spark.datasource.options.values import SourceOptions

        return SourceOptions.parse(given)

    def _service_uri(self, options: SourceOptions) -> str:
        from ledgerlog_spark.composition import service_uri

        return service_uri(options.metadata_service_uri, self.configured_service_uri)
