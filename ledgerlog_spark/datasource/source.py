"""`format("ledger")`: the schemas, readers and writers for Spark.

Spark imports this module when it looks up any Python source. So pyspark is the only heavy package
that the module imports.
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
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from ledgerlog_spark.datasource.options.values import SourceOptions

_NAMES_WHAT_TO_READ = frozenset({"path", "paths", "log", "logs", "logpattern", "ledgerid"})


class LedgerDataSource(DataSource):
    """Reads and writes logs, and reads single ledgers entry by entry.

    `configure(spark)` sets the class attributes for the session. The parallelism is the number of
    tasks that the session can run at the same time, or 1 for a session of Spark Connect.
    """

    configured_service_uri: ClassVar[str | None] = None
    configured_parallelism: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ledger"

    def schema(self) -> StructType:
        """Return the columns of a log's newest or selected version, or of a ledger's entries."""
        from pyspark.sql.types import StructType

        from ledgerlog_spark.datasource.cluster import client_of
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
                schema_json = planning.schema_of(client_of(uri).logs, read)
        except VersionNotAvailableError as error:
            # Spark calls this method for streams too, and a stream cannot select a version.
            named = "timestampAsOf" if "timestamp_as_of" in options.given else "versionAsOf"
            raise VersionNotAvailableError(
                f'{error.message.rstrip(".")}. With spark.readStream leave "{named}" out.',
                **error.fields,
            ) from error
        struct = json.loads(with_table_options(schema_json, table_options(given)))
        return StructType.fromJson(struct)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader. The planning of the scan determines the snapshot that is read."""
        from ledgerlog_spark.datasource.scan.pinned import PINNED_OPTION
        from ledgerlog_spark.datasource.scan.reader import BatchReader, RawReader

        given = self.options_of_read(schema)
        pinned = given.pop(PINNED_OPTION, None)
        options = self._options(given)
        read = options.for_read()
        uri = self._service_uri(options)
        rows = self._rows_schema(schema)
        if read.ledger_id is not None:
            return RawReader(uri, read, rows, pinned=pinned)
        return BatchReader(uri, read, rows, parallelism=self.configured_parallelism, pinned=pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return a streaming reader. If the options are invalid, the reader's first call fails.

        If this method raised the error, Spark 4.3 would turn it into an UnboundLocalError.
        """
        from ledgerlog_spark.datasource.stream.reader import FailedStreamReader, LedgerStreamReader
        from ledgerlog_spark.errors import LedgerLogError

        try:
            options = self._options(self.options_of_read(schema))
            return LedgerStreamReader(
                self._service_uri(options),
                options.for_stream(),
                self._rows_schema(schema),
                parallelism=self.configured_parallelism,
            )
        except LedgerLogError as error:
            return FailedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for one batch write, which makes one commit."""
        from ledgerlog_spark.datasource.write.writer import BatchWriter

        return BatchWriter(*self._of_write(schema, overwrite=overwrite), overwrite=overwrite)

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch. Spark creates another writer for the commit."""
        from ledgerlog_spark.datasource.stream.writer import StreamWriter

        of_write = self._of_write(schema, overwrite=overwrite, streams=True)
        return StreamWriter(*of_write, overwrite=overwrite)

    def options_of_read(self, schema: StructType) -> dict[str, str]:
        """Return the options of a read.

        If the given options select neither a log nor a ledger, the options of the table are added.
        """
        from ledgerlog_spark.datasource.options.sql_table import table_options_in

        given = dict(self.options)
        if _NAMES_WHAT_TO_READ & {key.lower() for key in given}:
            return given
        return {**table_options_in(schema.json()), **given}

    def _of_write(
        self, schema: StructType, *, overwrite: bool, streams: bool = False
    ) -> tuple[str, SourceOptions, str]:
        """Return the service URI, the options and the schema of a write.

        The schema does not contain the options of a table.
        """
        from ledgerlog_spark.datasource.options.sql_table import check_target

        given = dict(self.options)
        options = self._options(given)
        check_target(given, overwrite=overwrite, streams=streams)
        options.check_mode(overwrite=overwrite)
        chosen = options.for_stream_write() if streams else options.for_write()
        return self._service_uri(options), chosen, self._rows_schema(schema)

    def _rows_schema(self, schema: StructType) -> str:
        """Return the schema as JSON, without metadata that this source added."""
        from ledgerlog_spark.datasource.options.sql_table import without_table_options

        return without_table_options(schema.json())

    def _options(self, given: dict[str, str]) -> SourceOptions:
        from ledgerlog_spark.datasource.options.values import SourceOptions

        return SourceOptions.parse(given)

    def _service_uri(self, options: SourceOptions) -> str:
        from ledgerlog_spark.composition import service_uri

        return service_uri(options.metadata_service_uri, self.configured_service_uri)
