"""Runs garbage collection, which deletes the entries of deleted ledgers, and releases ledgers.

A ledger is dropped (its entries are deleted) only if three conditions are met. They are checked in
this order:

1. The bookie had the ledger before the listing of all ledgers in the metadata store began. A ledger
   that is created later may exist although it is not in the listing.
2. The listing does not contain the ledger.
3. A lookup of the ledger by its id, after a sync, finds no metadata. Without this lookup, an
   outdated listing could cause the deletion of a new ledger. If the lookup fails, the ledger stays
   until the next pass (PROTOCOL.md#F6).

If the metadata of a ledger no longer names this bookie, `releaser` may delete the ledger's entries
on this bookie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.ports import Future, LedgerListing, Priority, Tasks
from bookie_server.service.releaser import Released, Releaser
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import Code

BATCH_LEDGERS = 256  # number of ledgers that are looked up after one sync and dropped together


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of one pass."""

    is_whole: bool  # whether the listing was complete; otherwise nothing was dropped
    ledgers_held: int = 0  # number of ledgers before the pass, except ledgers dropped earlier
    ledgers_dropped: int = 0  # number of ledgers that the pass dropped durably
    ledgers_released: int = 0  # number of ledgers that the pass released durably
    ledgers_kept: int = 0  # number of ledgers whose release began, but could not be completed


class Collector:
    """Runs passes of garbage collection at an interval and on request, one after the other."""

    def __init__(
        self,
        *,
        storage: BookieStorage,
        listing: LedgerListing,
        releaser: Releaser,
        tasks: Tasks,
        interval_ms: int,
        on_pass: Callable[[Collected], None] = lambda _collected: None,
    ) -> None:
        self._storage = storage
        self._listing = listing
        self._releaser = releaser
        self._tasks = tasks
        self._interval_ms = interval_ms
        self._on_pass = on_pass
        self._is_stopped = False
        self._is_due = False
        self._is_requested = False  # whether a requested pass has not begun yet
        self._is_in_requested_pass = False
        self._compact_percent = 0  # threshold of the compaction after the requested pass
        self._due: Future[None] | None = None
        self._waiting: list[Future[Collected]] = []

    def start(self) -> None:
        """Start the passes. The first pass runs at the end of the first interval, or on request."""
        self._tasks.spawn("collector", self._run(), Priority.BACKGROUND)
        self._tasks.spawn("collector's clock", self._tick())

    def stop(self) -> None:
        """Drop and release no further ledger. A running pass ends at its next step."""
        self._is_stopped = True
        self._releaser.stop()
        self._wake()

    @property
    def is_forced(self) -> bool:
        """Whether a requested pass runs or is about to begin."""
        return self._is_requested or self._is_in_requested_pass

    def request(self, live_percent: int = 0) -> None:
        """Request a pass that begins after this call.

        If `live_percent` is above 0, a compaction starts at the end of the pass. It compacts the
        files whose live part is below `live_percent`.
        """
        self._is_requested = True
        self._compact_percent = max(self._compact_percent, live_percent)
        self._wake()

    async def collect(self, live_percent: int = 0) -> Collected:
        """Request a pass as `request` does, and wait for the end of the pass.

        The compaction may continue after this call has returned.
        """
        request: Future[Collected] = self._tasks.future()
        self._waiting.append(request)
        self.request(live_percent)
        return await request

    def _wake(self) -> None:
        self._is_due = True
        if self._due is not None:
            due, self._due = self._due, None
            resolve(due, None)

    async def _tick(self) -> None:
        while not self._is_stopped:
            await self._tasks.sleep(self._interval_ms)
            self._wake()

    async def _run(self) -> None:
        while not self._is_stopped:
            if not self._is_due:
                self._due = self._tasks.future()
                await self._due
                continue
            self._is_due = False
            requests, self._waiting = self._waiting, []
            self._is_in_requested_pass, self._is_requested = self._is_requested, False
            live_percent, self._compact_percent = self._compact_percent, 0
            collected = await self._pass()
            self._is_in_requested_pass = False
            if live_percent:
                self._storage.compactor.request(live_percent)
            self._on_pass(collected)
            for request in requests:
                resolve(request, collected)
        for request in self._waiting:
            resolve(request, Collected(is_whole=False))

    async def _pass(self) -> Collected:
        held = await self._storage.droppable()
        unlisted = await self._listing.unlisted(held)
        if unlisted is None:
            return Collected(is_whole=False, ledgers_held=len(held))
        dropped = 0
        for start in range(0, len(unlisted), BATCH_LEDGERS):
            dropped += await self._drop_deleted(unlisted[start : start + BATCH_LEDGERS])
        released = Released() if self._is_stopped else await self._releaser.release_some()
        if not self._is_stopped:
            await self._storage.reclaim()
            self._storage.compactor.compact_when_due()
        return Collected(
            is_whole=True,
            ledgers_held=len(held),
            ledgers_dropped=dropped,
            ledgers_released=released.released,
            ledgers_kept=released.kept,
        )

    async def _look_up(self, unlisted: Sequence[int]) -> Sequence[int]:
        """Return the ledgers of `unlisted` that are certainly deleted."""
        return await self._listing.deleted(unlisted)

    async def _drop_deleted(self, unlisted: Sequence[int]) -> int:
        deleted = await self._look_up(unlisted)
        if self._is_stopped or not deleted:
            return 0
        answered: Future[None] = self._tasks.future()
        codes: list[Code] = []

        def note(code: Code) -> None:
            codes.append(code)
            if len(codes) == len(deleted):
                resolve(answered, None)

        for ledger_id in deleted:
            self._storage.drop(ledger_id, note)
        await answered
        return codes.count(Code.OK)
