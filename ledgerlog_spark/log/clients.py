"""The clients that `connect` returns. They open logs and ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ledgerlog_spark.client.arguments import check_optional
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.blocking.derived import documented_by
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.blocking.logs import BlockingLogs
    from ledgerlog_spark.log.blocking.records import BlockingRecordLog
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.logs import Logs
    from ledgerlog_spark.log.reading.record_log import RecordLog


class LogClient(LedgerClient):
    """A `LedgerClient` that also opens logs."""

    @property
    def logs(self) -> Logs:
        """The logs of the cluster: their names, versions, ranges and maintenance.

        Raises:
            ConfigurationError: The client was composed without a log store.
        """
        from ledgerlog_spark.log.logs import logs_of

        return logs_of(self)

    @overload
    async def open_log(
        self,
        name: str,
        *,
        lead: Literal[True],
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Leader: ...
    @overload
    async def open_log(
        self,
        name: str,
        *,
        lead: Literal[False] = False,
    ) -> RecordLog: ...
    async def open_log(
        self,
        name: str,
        *,
        lead: bool = False,
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Leader | RecordLog:
        """Open a log, to read it or to append to it as its only leader.

        Args:
            name: The name of the log: 1 to 200 letters, digits, `.`, `_` and `-`.
            lead: Whether to become the leader. An earlier leader then can no longer append. If
                `lead` is false, the log is not changed.
            create_if_missing: Whether to create the log if `lead` is true and the log does not
                exist. With a schema, the new log is a log of rows; otherwise it is a log of
                records.
            properties: Properties of a new log by option name, such as `rollBytes`. Properties that
                are not given have their defaults. An existing log must have the given properties.
            schema: The schema of the rows to append, only if `lead` is true. An existing log must
                already have the columns of the schema. If this is None, rows have the columns of
                the log.

        Raises:
            ConfigurationError: The name, a property or the schema is not valid, or the log exists
                with other properties. Nothing was changed.
            LogNotFoundError: The log does not exist, and `create_if_missing` is false.
            MetadataError: There is no cluster at the path of the service URI.
            LogKindError: `lead` is true, but the log is transactional, or a schema was given for a
                log of records.
            SchemaMismatchError: Spark does not support a type of the schema, or the schema does not
                fit the rows of the log. Nothing was changed.
            LedgerLogError: The errors of `Leader.open`.
        """
        # Imported here, because most programs only open ledgers or read logs with Spark, and do not
        # need these modules.
        from ledgerlog_spark.log.reading.record_log import RecordLog
        from ledgerlog_spark.protocol.log.properties import new_properties
        from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

        check_optional("properties", properties, Mapping)
        logs = self.logs
        if not lead:
            _refuse_what_is_for_leaders(name, properties, schema)
            opened = await logs.open(name)
            state = await opened.state()
            return RecordLog(opened, state.head.kind, state.head.content, state.schema)
        new_properties(properties)
        stored = None
        if schema is not None:
            from ledgerlog_spark.arrow.leader_pieces import leader_schema

            stored = leader_schema(schema)
        if create_if_missing:
            log = await logs.open_or_create(
                name,
                schema=stored or b"",
                properties=properties,
                kind=LogKind.LEADER,
                content=LogContent.RECORDS if stored is None else LogContent.ROWS,
            )
        else:
            log = await logs.open(name)
        return await log.lead(self.services.settings, schema=stored, properties=properties)


def _refuse_what_is_for_leaders(name: str, properties: object, schema: object) -> None:
    if properties is not None:
        raise LocalProtocolError(
            "properties are set only when a log is created: open the log with lead=True, or change "
            "its properties with `ledgerlog logs set`",
            log=name,
        )
    if schema is not None:
        raise LocalProtocolError(
            "only a leader accepts a schema: open the log with lead=True, or read the log's own "
            "schema from `.schema`",
            log=name,
        )


class BlockingLogClient(BlockingClient):
    """Ledgers and logs of one cluster. Several threads may use the client, even after a fork.

    Every call waits for its result. A `with` statement closes the client at its end.
    """

    @property
    def logs(self) -> BlockingLogs:
        """The logs of the cluster: their names, versions, ranges and maintenance.

        Raises:
            ConfigurationError: The client was composed without a log store.
        """
        from ledgerlog_spark.log.blocking.logs import BlockingLogs

        return BlockingLogs(self)

    @overload
    def open_log(
        self,
        name: str,
        *,
        lead: Literal[True],
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> BlockingLeader: ...
    @overload
    def open_log(
        self,
        name: str,
        *,
        lead: Literal[False] = False,
    ) -> BlockingRecordLog: ...
    @documented_by(LogClient.open_log)
    def open_log(
        self,
        name: str,
        *,
        lead: bool = False,
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> BlockingLeader | BlockingRecordLog:
        """Return the opened log, or its leader if `lead` is true."""
        thread, client = self._connected()
        assert isinstance(client, LogClient)
        open_log: Any = client.open_log  # no overload accepts a bool
        opened = thread.call(
            open_log(
                name,
                lead=lead,
                create_if_missing=create_if_missing,
                properties=properties,
                schema=schema,
            )
        )
        if not lead:
            from ledgerlog_spark.log.blocking.records import BlockingRecordLog

            return BlockingRecordLog(opened, thread)
        from ledgerlog_spark.log.blocking.leader import BlockingLeader

        return BlockingLeader(opened, thread, client.services.settings)
