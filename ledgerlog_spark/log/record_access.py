"""How a leader log is led and read, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.log.maintenance.log_maintenance import LogMaintenance
from ledgerlog_spark.log.reading.newest_view import read_view
from ledgerlog_spark.protocol.log.properties import check_has_properties
from ledgerlog_spark.protocol.log.read.versions import LogState, StateMachine
from ledgerlog_spark.protocol.log.read.view import LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ledgerlog_spark.client.settings import ClientSettings
    from ledgerlog_spark.log.leader.content import LeaderContent
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.reading.ledger_entries import EntryCursor
    from ledgerlog_spark.log.reading.record_reader import RecordReader

T = TypeVar("T")

ABOVE_ANY_VERSION = 1 << 62
"""Who knows this version asks for no history."""


class LogRecords(LogMaintenance):
    """The part of `Log` that is about records."""

    def records(self, cursor_of: Callable[..., EntryCursor[T]]) -> RecordReader[T]:
        """What reads a leader log; `cursor_of` makes what decodes its entries."""
        # Imported here, like the leader below: who reads or writes rows needs neither.
        from ledgerlog_spark.log.reading.record_reader import RecordReader

        def listed(first_offset: int) -> Awaitable[LogView]:
            machine = ViewMachine(
                self.name, first_offset=first_offset, known_version=ABOVE_ANY_VERSION
            )
            return self._driver.run(machine)

        def ended(first_offset: int) -> Awaitable[LogView]:
            return read_view(
                self.name,
                self._driver,
                self._ledgers,
                first_offset=first_offset,
                known_version=ABOVE_ANY_VERSION,
                known_schemas=(),
                is_fresh=True,
            )

        return RecordReader(
            self.name,
            self.log_id,
            cursor_of,
            store=self._store,
            ledgers=self._ledgers,
            listed=listed,
            ended=ended,
        )

    async def lead(
        self,
        settings: ClientSettings,
        *,
        schema: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Leader:
        """The one that appends to this log from now on; an earlier one can append no more.

        Args:
            settings: Linger and backlog of appends.
            schema: Schema record of the rows that will be appended, which is compared with the
                log's; None for records, or for rows of the log's own schema.
            properties: By option name, that the log has to have; None for whatever it has.

        Raises:
            LogKindError: It is a transactional log, or one of records and not of rows.
            ConfigurationError: The log has other properties; nothing was changed.
            SchemaMismatchError: Such rows do not fit the log; nothing was changed.
            LedgerLogError: As of `Leader.open`.
        """
        state = await self._driver.run(StateMachine(self.name))
        check_leader_log(self.name, state.head.kind)
        check_has_properties(self.name, state.head.properties, properties or {})
        from ledgerlog_spark.log.leader.leader import Leader

        leader = Leader(
            self,
            driver=self._driver,
            ledgers=self._ledgers,
            settings=settings,
            content=_content_of(self.name, state, schema),
            now_ms=self._store.clock_ms,
        )
        await leader.open()
        return leader


def _content_of(log: str, state: LogState, schema: bytes | None) -> LeaderContent:
    if schema is None and state.head.content is LogContent.RECORDS:
        from ledgerlog_spark.log.leader.content import LeaderRecords

        return LeaderRecords(log)
    from ledgerlog_spark.log.leader.rows import rows_of

    return rows_of(log, state, schema)


def check_leader_log(log: str, kind: LogKind) -> None:
    """Let pass a log that has a leader.

    Raises:
        LogKindError: It is a transactional one.
    """
    if kind is not LogKind.LEADER:
        raise LogKindError(
            f"log {log!r} is a {kind.name.lower()} log, which has no leader: read and "
            'write it with Spark, format("ledger")',
            log=log,
        )


def check_holds(log: str, kind: LogKind, content: LogContent, wanted: LogContent) -> None:
    """Let pass a leader log of that content.

    Raises:
        LogKindError: It is another one.
    """
    check_leader_log(log, kind)
    if content is not wanted:
        how = "read and tail" if content is LogContent.RECORDS else "read_rows and tail_rows"
        raise LogKindError(
            f"log {log!r} is a leader log of {content.name.lower()}: its methods are {how}", log=log
        )
