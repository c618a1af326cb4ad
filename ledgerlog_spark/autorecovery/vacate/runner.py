"""Performs the effects of the machine of one vacation."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from ledgerlog_spark.errors import (
    LedgerLogError,
    MetadataError,
    MetadataFormatError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.ledgers.walk import WalkedLedger
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.autorecovery.vacate import messages as m
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import Vacating, VacatingSettings
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.repair_notes import (
    BlockedLedger,
    Move,
    MoveReason,
    Moves,
    Vacation,
    VacationKind,
    VacationPhase,
)

PAGE = 256
"""Maximum number of ledgers that are read at once, and of moves that are written at once."""
BLOCKED = "the ledger is open, and its writer has not replaced the bookie"
UNREADABLE = "the metadata of the ledger cannot be read, and may name the bookie"

_logger = logging.getLogger(__name__)


class VacationRunner:
    """Runs the vacation of one bookie until the vacation ends or is cancelled."""

    def __init__(
        self, stores: MetadataStores, bookie_id: str, settings: VacatingSettings | None = None
    ) -> None:
        self._stores = stores
        self._bookie_id = bookie_id
        self._machine = Vacating(bookie_id, settings)
        self._vacation: Vacation | None = None  # the vacation when it was last loaded
        self._ledgers: AsyncIterator[WalkedLedger] | None = None  # the ledgers of the present walk
        self._events: deque[m.Event] = deque([m.VacationBegun()])
        self._came = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._defect: BaseException | None = None
        self._performers: dict[type, Callable[[Any], Awaitable[m.Event]]] = {
            m.LoadVacation: self._load,
            m.LookAtBookie: self._look,
            m.WalkLedgers: self._walk,
            m.QueueMoves: self._queue,
            m.CountMoves: self._count,
            m.WriteVacation: self._write,
            m.Retire: self._retire,
            m.VacationPause: self._pause,
        }

    async def run(self) -> m.VacationEnd:
        """Run the machine to its end. If the vacation was cancelled, remove its moves."""
        try:
            while True:
                while self._events:
                    for effect in self._machine.handle(self._events.popleft()):
                        if isinstance(effect, m.VacationEnded):
                            await self._ended(effect.end)
                            return effect.end
                        self._begin(effect)
                self._came.clear()
                await forever(self._came.wait(), "each request and each pause ends")
                if self._defect is not None:
                    raise self._defect
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, effect: m.Request) -> None:
        task = asyncio.get_running_loop().create_task(self._perform(effect))
        self._tasks.add(task)
        task.add_done_callback(self._on_performed)

    def _on_performed(self, task: asyncio.Task[None]) -> None:
        """Store an unexpected error, which `run` then raises, because no event can report it."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._defect = error
            self._came.set()

    async def _perform(self, effect: m.Request) -> None:
        try:
            event = await self._performers[type(effect)](effect)
        except LedgerLogError as error:
            _logger.warning("vacation of bookie %s: %s", self._bookie_id, error)
            event = m.VacateFailed(effect.request)
        self._events.append(event)
        self._came.set()

    async def _load(self, effect: m.LoadVacation) -> m.Event:
        if not await self._stores.recovery_switch.is_enabled():
            return m.VacateFailed(effect.request)
        found = await self._stores.vacations.load(self._bookie_id)
        if found is None:
            return m.VacationLoaded(effect.request, None)
        self._vacation = found.value
        return m.VacationLoaded(effect.request, Versioned(departure_of(found.value), found.version))

    async def _look(self, effect: m.LookAtBookie) -> m.Event:
        found = await self._stores.registration.sight(self._bookie_id)
        if found is None:
            return m.BookieSeen(effect.request, m.BookieSight.ABSENT, None)
        is_read_only, created = found
        sight = m.BookieSight.READ_ONLY if is_read_only else m.BookieSight.WRITABLE
        return m.BookieSeen(effect.request, sight, created)

    async def _walk(self, effect: m.WalkLedgers) -> m.Event:
        ledgers = self._stores.ledgers
        if effect.sync_first:
            await ledgers.sync()
        if effect.after == -1 or self._ledgers is None:
            self._ledgers = ledgers.walk()
        page: list[tuple[int, LedgerMetadata]] = []
        unreadable: list[int] = []
        async for walked in self._ledgers:
            if isinstance(walked.found, MetadataFormatError):
                unreadable.append(walked.ledger_id)
            else:
                page.append((walked.ledger_id, walked.found.value))
            if len(page) + len(unreadable) == PAGE:
                return m.LedgersWalked(effect.request, page, False, unreadable)
        return m.LedgersWalked(effect.request, page, True, unreadable)

    async def _queue(self, effect: m.QueueMoves) -> m.Event:
        assert self._vacation is not None, "the vacation was loaded before this walk"
        note = Moves((Move(self._bookie_id, reason=MoveReason(self._vacation.kind.value)),))
        moves = self._stores.moves
        await asyncio.gather(*(moves.add(ledger_id, note) for ledger_id in effect.ledger_ids))
        return m.MovesQueued(effect.request)

    async def _count(self, effect: m.CountMoves) -> m.Event:
        """Count all moves. Few of them are of other bookies, as one vacation runs at a time."""
        count = 0
        async for _ in self._stores.moves.walk():
            count += 1
        return m.MovesCounted(effect.request, count)

    async def _write(self, effect: m.WriteVacation) -> m.Event:
        vacations = self._stores.vacations

        async def write(vacation: Vacation) -> Version:
            return await vacations.write(self._bookie_id, vacation, effect.version)

        return await self._written(effect, write)

    async def _retire(self, effect: m.Retire) -> m.Event:
        cookie = await self._stores.registration.read_cookie(self._bookie_id)
        vacations = self._stores.vacations

        async def write(vacation: Vacation) -> Version:
            if cookie is None:
                return await vacations.write(self._bookie_id, vacation, effect.version)
            return await vacations.write_and_delete_cookie(
                self._bookie_id, vacation, effect.version, cookie.version
            )

        return await self._written(effect, write)

    async def _written(
        self,
        effect: m.WriteVacation | m.Retire,
        write: Callable[[Vacation], Awaitable[Version]],
    ) -> m.Event:
        assert self._vacation is not None, "the vacation was loaded before this write"
        vacation = with_departure(self._vacation, effect.departure)
        try:
            version = await write(vacation)
        except MetadataVersionError:
            return m.VacationWritten(effect.request, m.VacationOutcome.CONFLICT)
        except MetadataError as error:
            _logger.warning("vacation of bookie %s: %s", self._bookie_id, error)
            return m.VacationWritten(effect.request, m.VacationOutcome.UNKNOWN)
        self._vacation = vacation
        return m.VacationWritten(effect.request, m.VacationOutcome.OK, version)

    @staticmethod
    async def _pause(effect: m.VacationPause) -> m.Event:
        await asyncio.sleep(effect.delay_ms / 1e3)
        return m.PauseOver(effect.request)

    async def _ended(self, end: m.VacationEnd) -> None:
        if end is m.VacationEnd.CANCELLED:
            await remove_moves(self._stores, self._bookie_id)


def departure_of(vacation: Vacation) -> Departure:
    """Return the part of a vacation that its machine needs."""
    return Departure(
        deletes_cookie=vacation.kind is VacationKind.DECOMMISSION,
        is_over=vacation.is_over,
        returns=vacation.returns,
        walks=vacation.walks,
        ledgers_total=max(0, vacation.ledgers_total),
        bytes_total=max(0, vacation.bytes_total),
        ledgers_left=max(0, vacation.ledgers_left),
        bytes_left=max(0, vacation.bytes_left),
        blocked=tuple(one.ledger_id for one in vacation.blocked if one.reason != UNREADABLE),
        unreadable=tuple(one.ledger_id for one in vacation.blocked if one.reason == UNREADABLE),
        blocked_count=vacation.blocked_count,
    )


def with_departure(vacation: Vacation, departure: Departure) -> Vacation:
    """Return a copy of the vacation with the progress from its machine."""
    phase = VacationPhase.VACATED if departure.is_over else VacationPhase.VACATING
    return replace(
        vacation,
        phase=phase,
        walks=departure.walks,
        ledgers_total=departure.ledgers_total,
        bytes_total=departure.bytes_total,
        ledgers_left=departure.ledgers_left,
        bytes_left=departure.bytes_left,
        blocked=(
            *(BlockedLedger(ledger_id, BLOCKED) for ledger_id in departure.blocked),
            *(BlockedLedger(ledger_id, UNREADABLE) for ledger_id in departure.unreadable),
        ),
        blocked_count=departure.blocked_count,
    )


async def remove_orphan_moves(stores: MetadataStores) -> None:
    """Remove the moves of vacations that were cancelled while no process ran vacations."""
    named: set[str] = set()
    async for ledger_id in stores.moves.walk():
        found = await stores.moves.load(ledger_id)
        if found is not None:
            moves = found.value.moves
            named |= {one.bookie_id for one in moves if one.reason is not MoveReason.PLACEMENT}
    # The vacations are read after the moves, because each vacation is written before its moves.
    for bookie_id in sorted(named - set(await stores.vacations.all() if named else ())):
        await remove_moves(stores, bookie_id)


async def remove_moves(stores: MetadataStores, bookie_id: str) -> None:
    """Remove the moves away from a bookie whose vacation was cancelled, and keep other moves."""
    ids: Sequence[int] = [ledger_id async for ledger_id in stores.moves.walk()]
    for ledger_id in ids:
        while (found := await stores.moves.load(ledger_id)) is not None:
            left = tuple(
                move
                for move in found.value.moves
                if move.bookie_id != bookie_id or move.reason is MoveReason.PLACEMENT
            )
            if len(left) == len(found.value.moves):
                break
            if left and await stores.moves.replace(ledger_id, Moves(left), found.version):
                break
            if not left and await stores.moves.delete(ledger_id, found.version):
                break
