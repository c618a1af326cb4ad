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
"""A reader that has this version needs no history."""


class LogRecords(LogMaintenance):
    """The part of `Log` for records."""

    def records(self, cursor_of: Callable[..., EntryCursor[T]]) -> RecordReader[T]:
        """A reader of a leader log; `cursor_of` makes the cursor that decodes its entries."""
        # Imported here, like the leader below: programs of rows need neither.
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
        """Become the leader of this log; an earlier leader can append no more.

        Args:
            settings: Linger and backlog of appends.
            schema: Schema record of the rows to append, which is compared with the log's; None for
                records, or for rows of the log's own schema.
            properties: Required properties of the log, by option name; None for any.

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
    """Raise LogKindError unless this is a leader log.

    Raises:
        LogKindError: It is a transactional log.
    """
    if kind is not LogKind.LEADER:
        raise LogKindError(
            f"log {log!r} is a {kind.name.lower()} log, which has no leader: read and "
            'write it with Spark, format("ledger")',
            log=log,
        )


def check_holds(log: str, kind: LogKind, content: LogContent, wanted: LogContent) -> None:
    """Raise LogKindError unless this is a leader log of that content.

    Raises:
        LogKindError: It has another kind or content.
    """
    check_leader_log(log, kind)
    if content is not wanted:
        how = "read and tail" if content is LogContent.RECORDS else "read_rows and tail_rows"
        raise LogKindError(
            f"log {log!r} is a leader log of {content.name.lower()}: its methods are {how}", log=log
        )
