"""How a leader log is led and read, record by record (DESIGN 6.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.log.log_upkeep import LogUpkeep
from ledgerlog_spark.log.newest_view import read_view
from ledgerlog_spark.log.open_ends import while_ledgers_go
from ledgerlog_spark.protocol.log_read import LogState, StateMachine
from ledgerlog_spark.protocol.log_records import LogContent, LogKind
from ledgerlog_spark.protocol.log_view import LogView, ViewMachine

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ledgerlog_spark.client.client import Face
    from ledgerlog_spark.client.settings import ClientSettings
    from ledgerlog_spark.log.leader import Leader
    from ledgerlog_spark.log.record_reader import RecordReader


ABOVE_ANY_VERSION = 1 << 62
"""Who knows this version asks for no history."""


class LogRecords(LogUpkeep):
    """The part of `Log` that is about records."""

    def records(self) -> RecordReader:
        """What reads the records of a leader log."""
        # Imported here, like the leader below: who reads or writes rows needs neither.
        from ledgerlog_spark.log.record_reader import RecordReader

        def listed(first_offset: int) -> Awaitable[LogView]:
            machine = ViewMachine(
                self.name, first_offset=first_offset, known_version=ABOVE_ANY_VERSION
            )
            return self._driver.run(machine)

        def ended(first_offset: int) -> Awaitable[LogView]:
            def viewed() -> Awaitable[LogView]:
                return read_view(
                    self.name,
                    self._driver,
                    self._ledgers,
                    first_offset=first_offset,
                    known_version=ABOVE_ANY_VERSION,
                    known_schemas=(),
                    is_fresh=True,
                )

            return while_ledgers_go(viewed)

        return RecordReader(
            self.name,
            self.log_id,
            store=self._store,
            ledgers=self._ledgers,
            listed=listed,
            ended=ended,
        )

    async def lead(self, settings: ClientSettings, face: Face | None = None) -> Leader:
        """The one that appends to this log from now on; an earlier one can append no more.

        Args:
            settings: Linger and backlog of appends.
            face: Of another thread, told what was sent and what completed.

        Raises:
            LogKindError: It is a transactional log, or one of rows.
            LedgerLogError: As of `Leader.open`.
        """
        state: LogState = await self._driver.run(StateMachine(self.name))
        check_holds_records(self.name, state.head.kind, state.head.content)
        from ledgerlog_spark.log.leader import Leader

        leader = Leader(
            self, driver=self._driver, ledgers=self._ledgers, settings=settings, face=face
        )
        await leader.open()
        return leader


def check_holds_records(log: str, kind: LogKind, content: LogContent) -> None:
    """Let pass a log whose leader appends records.

    Raises:
        LogKindError: It is another one.
    """
    if (kind, content) != (LogKind.LEADER, LogContent.RECORDS):
        raise LogKindError(
            f"log {log!r} is a {kind.name.lower()} log of {content.name.lower()}, which has no "
            'records one by one: read and write it with Spark, format("ledger")',
            log=log,
        )
