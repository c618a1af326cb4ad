"""The storage of a bookie with several directories. It passes each request to one directory.

It has the same methods as `LedgerStorage`. After a directory has failed, requests about its ledgers
get IO_ERROR, except for entries that can still be read. All other directories refuse regular adds,
and continue with reads, fences and the adds of recovery. The storage ends when all directories have
failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from bookie_server.core.background.compaction import ALL_PERCENT
from bookie_server.core.background.scrub import ScrubPosition
from bookie_server.core.doubt import Doubt
from bookie_server.core.requests import (
    OnAdd,
    OnLac,
    OnRead,
    OnReadBatch,
    OnReadSome,
    StoredAdd,
    StoredBatchRead,
    StoredRead,
    StoredReads,
    StoredSliceRead,
)
from bookie_server.errors import StorageError
from bookie_server.ports import Tasks
from bookie_server.storage.directories.homes import Homes
from bookie_server.storage.directories.joint_denials import DENIALS, request_all
from bookie_server.storage.directories.losses import JoinedLosses
from bookie_server.storage.lacs import OnLacChange
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.spans import Spans
from ledgerlog_spark.model import NO_ENTRY, Code


class LedgerDirectories:
    """The ledgers of several directories.

    Attributes:
        directories: The storages of the directories, in the order of the settings.
    """

    def __init__(self, directories: Sequence[LedgerStorage], tasks: Tasks) -> None:
        """Join open storages that share no ledger. The caller must then call `losses.follow`."""
        self.directories = tuple(directories)
        self.counters = JoinedCounters(self.directories)
        self.compactor = Compactors(self.directories)
        self.scrubber = Scrubbers(self.directories)
        self.on_state_change: Callable[[], None] = lambda: None
        self.losses = losses = JoinedLosses(self.directories, tasks)
        self.raise_doubt, self.date_doubt = losses.raise_doubt, losses.date_doubt
        self.end_doubt = losses.end_doubt
        self._homes = Homes(self.directories)
        self._is_set_read_only = False
        self._failed_count = 0
        for directory in self.directories:
            directory.on_state_change = self._changed
        self._changed()

    # The state of the storage.

    @property
    def failure(self) -> StorageError | None:
        """The error of the first directory, if all directories have failed."""
        return None if self._serving else self.directories[0].failure

    @property
    def is_writable(self) -> bool:
        """Whether any directory accepts regular adds. Other directories may be full."""
        return any(directory.is_writable for directory in self.directories)

    @property
    def has_room(self) -> bool:
        """Whether a recovery add or a fence of a new ledger has room."""
        return any(directory.has_room for directory in self.directories)

    @property
    def ledgers_count(self) -> int:
        """Number of ledgers in memory, including deleted ledgers that are not yet forgotten."""
        return sum(directory.ledgers_count for directory in self.directories)

    @property
    def files_count(self) -> int:
        """Number of entry-log files that may hold entries."""
        return sum(directory.files_count for directory in self.directories)

    def is_known(self, ledger_id: int) -> bool:
        """Return whether a directory has a state of the ledger."""
        return any(directory.is_known(ledger_id) for directory in self.directories)

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether regular adds of the ledger are refused."""
        home = self._homes.of(ledger_id)
        return home is not None and home.is_fenced(ledger_id)

    def set_read_only(self, *, is_read_only: bool) -> None:
        """Refuse regular adds, or accept them again if no directory has failed."""
        self._is_set_read_only = is_read_only
        self._apply_read_only()

    @property
    def _serving(self) -> list[LedgerStorage]:
        return [each for each in self.directories if each.failure is None]

    def _changed(self) -> None:
        failed_count = len(self.directories) - len(self._serving)
        if failed_count != self._failed_count:
            self._failed_count = failed_count
            self._apply_read_only()
        self.on_state_change()

    def _apply_read_only(self) -> None:
        # After a failure, clients must choose other bookies for their next entries, because any
        # ledger may be in the failed directory.
        is_read_only = self._is_set_read_only or self._failed_count > 0
        for directory in self.directories:
            directory.set_read_only(is_read_only=is_read_only)

    # Adds.

    def add(self, request: StoredAdd, on_done: OnAdd) -> None:
        """Store all entries of a run of entries, or none."""
        ledger_id = request.ledger_id
        home = self._homes.of(ledger_id)
        if home is None:
            home, on_done = self._begin(ledger_id, on_done, is_regular=not request.is_recovery)
        home.add(request, on_done)

    def add_together(self, request: StoredAdd, on_done: OnAdd) -> bool:
        """Store a run of entries, each of which was sent as one add, and return True."""
        ledger_id = request.ledger_id
        home = self._homes.of(ledger_id)
        if home is not None:
            return home.add_together(request, on_done)
        home = self._homes.begin(ledger_id, is_regular=not request.is_recovery)
        # If `add_together` makes a state, it makes this state before it returns.
        self._homes.end(ledger_id)
        return home.add_together(request, on_done)

    def _begin(
        self, ledger_id: int, on_done: OnAdd, *, is_regular: bool
    ) -> tuple[LedgerStorage, OnAdd]:
        """Return the directory for a ledger's first record, and the function for the answer."""
        home = self._homes.begin(ledger_id, is_regular=is_regular)

        def done(code: Code) -> None:
            self._homes.end(ledger_id)
            on_done(code)

        return home, done

    # Reads.

    def read(self, request: StoredRead, on_done: OnRead) -> None:
        """Read one stored entry. If the request has a key, first fence the ledger."""
        home = self._homes.of(request.ledger_id)
        if home is not None:
            home.read(request, on_done)
        elif request.fence_key is None:
            request_all([partial(each.read, request) for each in self.directories], on_done)
        else:
            home = self._homes.begin(request.ledger_id, is_regular=False)
            plain = replace(request, fence_key=None)
            others = [partial(each.read, plain) for each in self.directories if each is not home]

            def done(code: Code, entry: bytes | None) -> None:
                self._homes.end(request.ledger_id)
                request_all([lambda then: then(code, entry), *others], on_done)

            home.read(request, done)

    def read_batch(self, request: StoredBatchRead, on_done: OnReadBatch) -> None:
        """Read consecutive stored entries. If the request has a key, first fence the ledger."""
        home = self._homes.of(request.ledger_id)
        if home is not None:
            home.read_batch(request, on_done)
        elif request.fence_key is None:
            request_all([partial(each.read_batch, request) for each in self.directories], on_done)
        else:
            home = self._homes.begin(request.ledger_id, is_regular=False)
            plain = replace(request, fence_key=None)
            others = [
                partial(each.read_batch, plain) for each in self.directories if each is not home
            ]

            def done(code: Code, entries: Sequence[bytes]) -> None:
                self._homes.end(request.ledger_id)
                request_all([lambda then: then(code, entries), *others], on_done)

            home.read_batch(request, done)

    def read_slices(self, request: StoredSliceRead, on_done: OnReadBatch) -> None:
        """Read byte ranges of stored entries."""
        home = self._homes.of(request.ledger_id)
        if home is not None:
            home.read_slices(request, on_done)
        else:
            request_all([partial(each.read_slices, request) for each in self.directories], on_done)

    def read_together(self, request: StoredReads, on_some: OnReadSome) -> int:
        """Read the requested entries from the first on, up to a limit, and return their number."""
        home = self._homes.of(request.ledger_id)
        if home is not None:
            return home.read_together(request, on_some)
        self._read_from(request, 0, on_some)
        return len(request.entry_ids)

    def _read_from(self, request: StoredReads, number: int, on_some: OnReadSome) -> None:
        """Read entries from directory `number`. The next directory reads the entries it denies."""

        def answered(code: Code, ids: Sequence[int], entries: Sequence[bytes]) -> None:
            if code in DENIALS and number + 1 < len(self.directories):
                self._read_from(replace(request, entry_ids=ids), number + 1, on_some)
            else:
                on_some(code, ids, entries)

        while request.entry_ids:
            count = self.directories[number].read_together(request, answered)
            request = replace(request, entry_ids=request.entry_ids[count:])

    async def entries_held(self, ledger_id: int, count_max: int) -> Spans:
        """Return the first and the last id of each stretch of a ledger's stored entries."""
        home = self._homes.of(ledger_id)
        held = Spans()
        for directory in self.directories if home is None else (home,):
            held = await directory.entries_held(ledger_id, count_max)
            if len(held):
                break
        return held

    # Last adds confirmed.

    def read_lac(self, ledger_id: int, on_done: OnLac) -> None:
        """Answer with the known LAC of a ledger."""
        home = self._homes.of(ledger_id)
        if home is not None:
            home.read_lac(ledger_id, on_done)
        else:
            request_all([partial(each.read_lac, ledger_id) for each in self.directories], on_done)

    def write_lac(self, ledger_id: int, lac: int, master_key: bytes, on_done: OnAdd) -> None:
        """Store an explicit LAC, and answer when it is durable."""
        home = self._homes.of(ledger_id)
        if home is None:
            home, on_done = self._begin(ledger_id, on_done, is_regular=False)
        home.write_lac(ledger_id, lac, master_key, on_done)

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Remember a confirmed LAC of a ledger, unless the ledger is unknown."""
        home = self._homes.of(ledger_id)
        if home is not None:
            home.announce_lac(ledger_id, lac, master_key)

    def watch_lac(self, ledger_id: int, on_change: OnLacChange) -> Callable[[], None]:
        """Call `on_change` whenever the LAC grows, and return a function that ends the watch."""
        # Watch in all directories, because the directory of an unknown ledger is chosen later.
        ends = [each.watch_lac(ledger_id, on_change) for each in self.directories]

        def cancel() -> None:
            for end in ends:
                end()

        return cancel

    # Repair.

    @property
    def doubt(self) -> Doubt:
        """The doubt that is durable in all directories."""
        return self.losses.durable

    @property
    def ledgers_in_limbo(self) -> int:
        """Number of ledgers with a state that were in limbo when they were last counted."""
        return sum(directory.ledgers_in_limbo for directory in self._serving)

    def limbo_ledgers(self) -> list[int]:
        """Return the ids of the ledgers in limbo that can be repaired, in ascending order."""
        return sorted(i for each in self._serving for i in each.limbo_ledgers())

    def take_asked(self) -> list[int]:
        """Return the ledgers that got the answer "unknown" since the last call."""
        return list(dict.fromkeys(i for each in self.directories for i in each.take_asked()))

    def last_accepted_id(self, ledger_id: int) -> int:
        """Return the largest accepted entry id of a ledger, or -1."""
        home = self._homes.of(ledger_id)
        return NO_ENTRY if home is None else home.last_accepted_id(ledger_id)

    def take_damaged(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the damaged entries that scrubs have found since the last call."""
        return [entry for each in self._serving for entry in each.take_damaged()]

    async def verify_held(
        self, ledger_id: int, entry_ids: Sequence[int], is_intact: Callable[[int, bytes], bool]
    ) -> frozenset[int]:
        """Return the ids of the stored entries whose bytes `is_intact` accepts."""
        home = self._homes.of(ledger_id)
        if home is None:
            return frozenset()
        return await home.verify_held(ledger_id, entry_ids, is_intact)

    async def store_repaired(self, ledger_id: int, entry_id: int, stored: bytes) -> Code:
        """Store an entry as a recovery add. If the code is OK, the entry is synced."""
        with self._homes.expecting(ledger_id) as home:
            return await home.store_repaired(ledger_id, entry_id, stored)

    async def clear_ledger(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> Code:
        """Store that a ledger lost nothing up to `epoch`, or that its losses are repaired."""
        with self._homes.expecting(ledger_id) as home:
            return await home.clear_ledger(ledger_id, epoch, last_add_confirmed)

    async def keep_in_limbo(self, ledger_id: int) -> Code:
        """Write the state of a ledger in limbo. If the code is OK, the state is synced."""
        with self._homes.expecting(ledger_id) as home:
            return await home.keep_in_limbo(ledger_id)

    # Deletions.

    async def droppable(self) -> list[int]:
        """Return the ids of all ledgers that may be dropped, in ascending order."""
        return sorted([i for each in self._serving for i in await each.droppable()])

    def drop(self, ledger_id: int, on_done: OnAdd) -> None:
        """Fence a ledger, and delete all entries that were accepted for the ledger so far."""
        home = self._homes.of(ledger_id)
        if home is None:
            on_done(Code.NO_LEDGER)
        else:
            home.drop(ledger_id, on_done)

    async def releasable(self) -> list[int]:
        """Return the ids of all ledgers that may be released, in ascending order."""
        return sorted([i for each in self._serving for i in await each.releasable()])

    def hide(self, ledger_id: int) -> bool:
        """Begin the release of a ledger, and return whether it is hidden."""
        home = self._homes.of(ledger_id)
        return home is not None and home.hide(ledger_id)

    def unhide(self, ledger_id: int) -> None:
        """End a release that was not completed."""
        home = self._homes.of(ledger_id)
        if home is not None:
            home.unhide(ledger_id)

    def release(self, ledger_id: int, on_done: OnAdd) -> None:
        """Delete the entries of a hidden ledger, without a fence."""
        home = self._homes.of(ledger_id)
        if home is None:
            on_done(Code.NO_LEDGER)
        else:
            home.release(ledger_id, on_done)

    async def reclaim(self) -> None:
        """Free the finished files without live entries, and forget old tombstones."""
        for directory in self._serving:
            await directory.reclaim()

    async def close(self) -> None:
        """Stop each directory as `LedgerStorage.close` does."""
        async with AsyncExitStack() as stack:
            for directory in self.directories:
                stack.push_async_callback(directory.close)


@dataclass(frozen=True, slots=True)
class JoinedCounters:
    """The counters of all directories."""

    directories: Sequence[LedgerStorage]

    def by_metric(self) -> dict[str, int]:
        """Return the sums of the counts by metric name."""
        counts = [directory.counters.by_metric() for directory in self.directories]
        return {name: sum(each[name] for each in counts) for name in counts[0]}


@dataclass(frozen=True, slots=True)
class Compactors:
    """The compactors of all directories."""

    directories: Sequence[LedgerStorage]

    @property
    def running_percent(self) -> int:
        """The largest threshold of the running compactions, or 0."""
        return max(each.compactor.running_percent for each in self.directories)

    def request(self, live_percent: int = ALL_PERCENT) -> None:
        """Start to compact the files of which less than `live_percent` % is live."""
        for directory in self.directories:
            directory.compactor.request(live_percent)

    def compact_when_due(self) -> None:
        """Start the compactions whose intervals have passed."""
        for directory in self.directories:
            directory.compactor.compact_when_due()


@dataclass(frozen=True, slots=True)
class Scrubbers:
    """The scrubs of all directories."""

    directories: Sequence[LedgerStorage]

    @property
    def is_running(self) -> bool:
        """Whether a scrub runs."""
        return any(each.scrubber.is_running for each in self.directories)

    @property
    def position(self) -> ScrubPosition:
        """The scrub position of the directory whose last scrub ended first."""
        return min((each.scrubber.position for each in self.directories), key=_ended_ms)

    @property
    def files_left(self) -> int:
        """Number of files that the running scrubs have not read."""
        return sum(each.scrubber.files_left for each in self.directories)

    @property
    def damaged_count(self) -> int:
        """Number of damaged entries that wait for a repair."""
        return sum(each.scrubber.damaged_count for each in self.directories)

    def request(self) -> None:
        """In each directory, continue the scrub that has not ended, or begin a new scrub."""
        for directory in self.directories:
            directory.scrubber.request()


def _ended_ms(position: ScrubPosition) -> int:
    return position.ended_ms
