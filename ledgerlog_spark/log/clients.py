"""Clients that open logs and ledgers: the results of `connect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.blocking.derived import documented_by
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.blocking.logs import BlockingLogs
    from ledgerlog_spark.log.blocking.records import BlockingRecordLog
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.logs import Logs
    from ledgerlog_spark.log.reading.record_log import RecordLog


class LogClient(LedgerClient):
    """A `LedgerClient` that opens logs too."""

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
        """Open a log to read, or to append to as its one leader.

        Args:
            name: 1 to 200 of letters, digits, `.`, `_` and `-`.
            lead: Become the leader; an earlier leader can then append nothing more. Without it
                nothing is changed.
            create_if_missing: With `lead`, make the log if it does not exist: of records, or with a
                schema, of rows.
            properties: Properties of a new log, by option name, such as `rollBytes`; the others
                have their defaults. An existing log has to have the given properties.
            schema: With `lead`, the schema of the rows to append. An existing log has to have its
                columns already; without it the rows have the columns of the log.

        Raises:
            ConfigurationError: A bad name, property or schema, before any I/O. An option is wrong,
                or the log exists with other properties; nothing was changed.
            LogNotFoundError: It does not exist, and is not to be made.
            MetadataError: There is no cluster at the path of the service URI.
            LogKindError: With `lead`: a transactional log; with a schema also one of records.
            SchemaMismatchError: A schema that Spark has no types for, or one that the rows of the
                log do not have; nothing was changed.
            LedgerLogError: As of `Leader.open`.
        """
        # Imported here: most programs open ledgers, or read logs with Spark.
        from ledgerlog_spark.log.reading.record_log import RecordLog
        from ledgerlog_spark.protocol.log.properties import new_properties
        from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

        logs = self.logs
        if not lead:
            _refuse_what_is_for_leaders(name, properties, schema)
            opened = await logs.open(name)
            state = await opened.state()
            return RecordLog(opened, state.head.kind, state.head.content, state.schema)
        new_properties(properties)
        stored = None if schema is None else _schema_record(schema)
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
            "properties are set when a log is created: open it with lead=True, or change them "
            "with `ledgerlog logs set`",
            log=name,
        )
    if schema is not None:
        raise LocalProtocolError(
            "a schema is given to a leader only: open the log with lead=True; a log that is "
            "opened for reading has its own schema, as `.schema`",
            log=name,
        )


def _schema_record(schema: object) -> bytes:
    from ledgerlog_spark.arrow.leader_pieces import leader_schema

    return leader_schema(schema)


class BlockingLogClient(BlockingClient):
    """Ledgers and logs of one cluster; safe to use from several threads, and after a fork.

    Every call waits until it is done. `with` closes the client at its end.
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
        """A log to read, or to append to."""
        thread, client = self._connected()
        assert isinstance(client, LogClient)
        if not lead:
            from ledgerlog_spark.log.blocking.records import BlockingRecordLog

            _refuse_what_is_for_leaders(name, properties, schema)
            return BlockingRecordLog(thread.call(client.open_log(name)), thread)
        from ledgerlog_spark.log.blocking.leader import BlockingLeader

        opening = client.open_log(
            name,
            lead=True,
            create_if_missing=create_if_missing,
            properties=properties,
            schema=schema,
        )
        return BlockingLeader(thread.call(opening), thread, client.services.settings)
