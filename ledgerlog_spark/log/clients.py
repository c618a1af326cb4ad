"""Clients that open logs beside ledgers: what `connect` gives (DESIGN 10)."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Literal, overload

from ledgerlog_spark.client.blocking import BlockingClient
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from ledgerlog_spark.client.client import Face
    from ledgerlog_spark.client.engine import Services
    from ledgerlog_spark.log.blocking_leader import BlockingLeader
    from ledgerlog_spark.log.blocking_records import BlockingRecordLog
    from ledgerlog_spark.log.leader import Leader
    from ledgerlog_spark.log.record_log import RecordLog


class LogClient(LedgerClient):
    """A `LedgerClient` that opens logs too."""

    def __init__(
        self,
        services: Services,
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
        is_orphaned: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """A client of `services`; see `LedgerClient`."""
        super().__init__(services, on_close=on_close, is_orphaned=is_orphaned)
        self._leaders: weakref.WeakSet[Leader] = weakref.WeakSet()

    @overload
    async def open_log(
        self,
        name: str,
        *,
        lead: Literal[True],
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        face: Face | None = None,
    ) -> Leader: ...
    @overload
    async def open_log(
        self,
        name: str,
        *,
        lead: Literal[False] = False,
        properties: Mapping[str, str] | None = None,
    ) -> RecordLog: ...
    async def open_log(
        self,
        name: str,
        *,
        lead: bool = False,
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
        face: Face | None = None,
    ) -> Leader | RecordLog:
        """A log to read, or to append to as its one leader.

        Args:
            name: 1 to 200 of letters, digits, `.`, `_` and `-`.
            lead: Become the leader: an earlier one can append no more. Without it nothing is
                changed.
            create_if_missing: With `lead`, make a log of records when there is none.
            properties: Of a log that is made, by option name, such as `rollBytes`; what is left
                out has its default.
            face: Of another thread, told of appends.

        Raises:
            ConfigurationError: A bad name or property, before any I/O.
            LogNotFoundError: There is none, and it is not to be made.
            MetadataError: There is no cluster at the path of the service URI.
            LogKindError: With `lead`: a transactional log, or one of rows.
            LedgerLogError: As of `Leader.open`.
        """
        # Imported here: most who connect open ledgers, or read logs with Spark.
        from ledgerlog_spark.log.logs import logs_of
        from ledgerlog_spark.log.record_log import RecordLog
        from ledgerlog_spark.protocol.log_records import LogContent, LogKind

        logs = logs_of(self)
        if not lead and properties is not None:
            raise LocalProtocolError(
                "properties are those of a log that is made: open it with lead=True, or change "
                "them with `ledgerlog logs set`",
                log=name,
            )
        if not lead:
            opened = await logs.open(name)
            head = (await opened.state()).head
            return RecordLog(opened, head.kind, head.content)
        if create_if_missing:
            log = await logs.open_or_create(
                name, properties=properties, kind=LogKind.LEADER, content=LogContent.RECORDS
            )
        else:
            log = await logs.open(name)
        leader = await log.lead(self.services.settings, face)
        self._leaders.add(leader)
        return leader

    async def aclose(self) -> None:
        """End all connections. Leaders stop without closing: the next one seals what is open."""
        for leader in list(self._leaders):
            leader.abandon()
        await super().aclose()


class BlockingLogClient(BlockingClient):
    """A `BlockingClient` that opens logs too; safe to use from several threads and after forks."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, LogClient]]) -> None:
        """A connected client; see `BlockingClient`."""
        super().__init__(connect)

    @overload
    def open_log(
        self,
        name: str,
        *,
        lead: Literal[True],
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> BlockingLeader: ...
    @overload
    def open_log(self, name: str, *, lead: Literal[False] = False) -> BlockingRecordLog: ...
    def open_log(
        self,
        name: str,
        *,
        lead: bool = False,
        create_if_missing: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> BlockingLeader | BlockingRecordLog:
        """A log to read, or to append to as its one leader; see `LogClient.open_log`."""
        thread, client = self._connected()
        assert isinstance(client, LogClient)
        if not lead:
            from ledgerlog_spark.log.blocking_records import BlockingRecordLog

            opened = client.open_log(name, lead=False, properties=properties)
            return BlockingRecordLog(thread.call(opened), thread)
        from ledgerlog_spark.client.blocking_writer import Inbox
        from ledgerlog_spark.log.blocking_leader import BlockingLeader

        inbox = Inbox(client.services.settings, thread)
        leader = thread.call(
            client.open_log(
                name,
                lead=True,
                create_if_missing=create_if_missing,
                properties=properties,
                face=inbox,
            )
        )
        return BlockingLeader(leader, thread, inbox)
