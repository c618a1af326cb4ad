"""The requests of the audit's machines to the metadata store.

Each method returns the reply for the machine. After an error of the store, the reply reports the
failure, and the machine tries again later. A mark, hole or move is written only while the process
may publish. The write is never sent again in a new session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.errors import LedgerLogError, LedgerNotFoundError, MetadataFormatError
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.replication.ports import (
    Check,
    CheckTimes,
    LedgerNotes,
    MarkQueue,
    RecoverySwitch,
    Walk,
    WalkPosition,
)
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.wire.repair_notes import (
    Hole,
    HoleKind,
    Holes,
    Move,
    MoveReason,
    Moves,
)

LOADS_MAX = 64
"""Number of records that are loaded at the same time."""
_CHECKS = {m.CheckKind.REPLICAS: Check.REPLICAS, m.CheckKind.PLACEMENT: Check.PLACEMENT}


@dataclass(frozen=True, slots=True)
class AuditStores:
    """The metadata stores that the audit uses."""

    tree: ZnodeTree
    ledgers: LedgerStore
    registration: Registration
    marks: MarkQueue
    holes: LedgerNotes[Holes]
    moves: LedgerNotes[Moves]
    switch: RecoverySwitch
    times: CheckTimes


class AuditStoreRequests:
    """Performs one machine's requests to the metadata store."""

    def __init__(
        self,
        stores: AuditStores,
        choice: BookieChoice,
        may_write: Callable[[], bool],
        report: Callable[[LedgerLogError], None],
    ) -> None:
        """Create an object that sends nothing before its first request.

        Args:
            stores: The stores.
            choice: The places of bookies, for the placement check.
            may_write: Function that returns whether the process is elected or has the lease, and is
                connected to the store.
            report: Function that is called with each error of the store.
        """
        self._stores = stores
        self._choice = choice
        self._may_write = may_write
        self._report = report
        self._walk: tuple[int, AsyncIterator[Any]] | None = None  # position and records of a walk
        self._is_walk_old = False  # whether the cluster was read after the walk was opened
        self._digests_begun_ms = 0
        self.performs: Mapping[type, Callable[[Any], Any]] = {
            m.ReadCluster: self._read_cluster,
            m.ReadRecords: self._read_records,
            m.LoadRecords: self._load_records,
            m.WriteMark: self._write_mark,
            m.WriteHole: self._write_hole,
            m.WriteMove: self._write_move,
            m.ReadPlaces: self._read_places,
            m.ReadCheckTime: self._read_check_time,
        }
        self.stores: Mapping[type, Callable[[Any], Any]] = {
            m.StorePosition: self._store_position,
            m.StoreCheckTime: self._store_check_time,
        }

    async def close(self) -> None:
        """Close the reader of the present walk."""
        walk, self._walk = self._walk, None
        if walk is not None and hasattr(walk[1], "aclose"):
            await walk[1].aclose()

    async def _read_cluster(self, effect: m.ReadCluster) -> m.ClusterRead:
        try:
            return m.ClusterRead(effect.request, await self._cluster())
        except LedgerLogError as error:
            self._report(error)
            return m.ClusterRead(effect.request, None)

    async def _cluster(self) -> m.ClusterState:
        """Read the state of the cluster after a sync. No record from before the sync is used."""
        self._is_walk_old = True
        registration = self._stores.registration
        await registration.sync()
        registered: set[str] = set()
        for read in (registration.writable, registration.read_only, registration.writable):
            # The third read finds a bookie that became writable between the first and the second
            # read.
            registered.update(await read())
        delay = await self._stores.switch.lost_bookie_delay()
        return m.ClusterState(
            registered=frozenset(registered),
            known=frozenset(await registration.known()),
            is_enabled=await self._stores.switch.is_enabled(),
            delay_ms=0 if delay is None else delay.value * 1_000,
            delay_writes=0 if delay is None else number_of(delay.version),
        )

    async def _read_records(self, effect: m.ReadRecords) -> m.RecordsRead:
        try:
            return await self._page(effect)
        except LedgerLogError as error:
            await self.close()
            self._report(error)
            return m.RecordsRead(effect.request, is_read=False)

    async def _page(self, effect: m.ReadRecords) -> m.RecordsRead:
        """Read the next records of the present walk, or begin a walk at the effect's position."""
        if self._is_walk_old or self._walk is None or self._walk[0] != effect.after:
            self._is_walk_old = False
            await self.close()
            self._walk = effect.after, self._stores.ledgers.walk(effect.after)
        last, walked = self._walk
        records, unreadable = list[m.LedgerRecord](), list[int]()
        is_end = True
        async for each in walked:
            last = each.ledger_id
            if isinstance(each.found, MetadataFormatError):
                unreadable.append(last)
            else:
                records.append(m.LedgerRecord(last, each.found.value, each.found.version))
            if len(records) + len(unreadable) == effect.count_max:
                is_end = False
                break
        self._walk = None if is_end else (last, walked)
        return m.RecordsRead(effect.request, True, records, unreadable, last, is_end)

    async def _load_records(self, effect: m.LoadRecords) -> m.RecordsRead:
        places = asyncio.Semaphore(LOADS_MAX)
        unreadable = list[int]()

        async def load(ledger_id: int) -> m.LedgerRecord | None:
            async with places:
                try:
                    found = await self._stores.ledgers.load(ledger_id)
                except LedgerNotFoundError:
                    return None
                except MetadataFormatError:
                    unreadable.append(ledger_id)
                    return None
                return _record(ledger_id, found)

        try:
            await self._stores.ledgers.sync()
            loaded = await asyncio.gather(*map(load, effect.ledger_ids))
        except LedgerLogError as error:
            self._report(error)
            return m.RecordsRead(effect.request, is_read=False)
        records = [one for one in loaded if one is not None]
        return m.RecordsRead(effect.request, True, records, sorted(unreadable))

    async def _written(self, request: int, write: Any) -> m.NoteWritten:
        """Await a write, and return the reply. If the process may not publish, write nothing."""
        if not self._may_write():
            write.close()
            return m.NoteWritten(request, is_written=False)
        try:
            await write
        except LedgerLogError as error:
            self._report(error)
            return m.NoteWritten(request, is_written=False)
        return m.NoteWritten(request, is_written=True)

    async def _write_mark(self, effect: m.WriteMark) -> m.NoteWritten:
        write = self._stores.marks.mark(effect.ledger_id, effect.bookie_ids)
        return await self._written(effect.request, write)

    async def _write_hole(self, effect: m.WriteHole) -> m.NoteWritten:
        holes = tuple(_hole(one) for one in effect.holes)
        write = self._stores.holes.add(effect.ledger_id, Holes(holes))
        return await self._written(effect.request, write)

    async def _write_move(self, effect: m.WriteMove) -> m.NoteWritten:
        moves = tuple(
            Move(bookie_id, reason=MoveReason.PLACEMENT) for bookie_id in effect.bookie_ids
        )
        write = self._stores.moves.add(effect.ledger_id, Moves(moves))
        return await self._written(effect.request, write)

    async def _read_places(self, effect: m.ReadPlaces) -> m.PlacesRead:
        try:
            found = await self._choice.candidates(is_fresh=True)
        except LedgerLogError as error:
            self._report(error)
            return m.PlacesRead(effect.request, is_read=False)
        return m.PlacesRead(effect.request, True, found.bookies, found.policy, found.names)

    # Times and positions.

    async def _read_check_time(self, effect: m.ReadCheckTime) -> m.CheckTimeRead:
        try:
            return await self._check_time(effect)
        except LedgerLogError as error:
            self._report(error)
            return m.CheckTimeRead(effect.request, is_read=False)

    async def _check_time(self, effect: m.ReadCheckTime) -> m.CheckTimeRead:
        """Read the time of a check, which is only from the store's clock (AUTORECOVERY.md#N10)."""
        now_ms = self._stores.tree.clock.estimate_ms()
        if now_ms is None:  # unknown, because this session has not written to the store yet
            return m.CheckTimeRead(effect.request, is_read=False)
        if effect.kind is m.CheckKind.DIGESTS:
            position = await self._stores.times.position(Walk.DIGESTS)
            is_under_way = position.ledger_id >= 0
            self._digests_begun_ms = position.begun_ms if is_under_way else now_ms
            has_begun = position.passes or is_under_way
            elapsed_ms = now_ms - position.begun_ms if has_begun else None
            return m.CheckTimeRead(effect.request, True, elapsed_ms, position.ledger_id)
        ended_ms = await self._stores.times.time_ms(_CHECKS[effect.kind])
        elapsed = None if ended_ms is None else now_ms - ended_ms
        return m.CheckTimeRead(effect.request, True, elapsed)

    async def _store_position(self, effect: m.StorePosition) -> None:
        await self._stored(self._set_position(Walk.LEDGERS, effect.after))

    async def _store_check_time(self, effect: m.StoreCheckTime) -> None:
        if effect.kind is m.CheckKind.DIGESTS:
            after = -1 if effect.is_complete else effect.after
            await self._stored(self._set_position(Walk.DIGESTS, after, effect.is_complete))
            return
        now_ms = self._stores.tree.clock.estimate_ms()
        if effect.is_complete and now_ms is not None:
            await self._stored(self._stores.times.set_time_ms(_CHECKS[effect.kind], now_ms))

    async def _set_position(self, walk: Walk, after: int, is_complete: bool = False) -> None:
        passes = (await self._stores.times.position(walk)).passes + is_complete
        begun_ms = self._digests_begun_ms if walk is Walk.DIGESTS else 0
        await self._stores.times.set_position(walk, WalkPosition(after, begun_ms, passes))

    async def _stored(self, write: Any) -> None:
        """Await a write that saves work for a successor.

        Report its errors, but do not raise them.
        """
        if not self._may_write():
            write.close()
            return
        try:
            await write
        except LedgerLogError as error:
            self._report(error)


def number_of(version: Version) -> int:
    """Return a number that is different for each version of a node."""
    return (version.incarnation << 32) + version.number


def _record(ledger_id: int, found: Versioned[LedgerMetadata]) -> m.LedgerRecord:
    return m.LedgerRecord(ledger_id, found.value, found.version)


def _hole(found: m.FoundHole) -> Hole:
    kind = HoleKind.DAMAGED if found.is_damaged else HoleKind.MISSING
    ranges = ((found.first_entry_id, found.last_entry_id),)
    return Hole(found.bookie_id, found.fragment_id, kind, ranges)
