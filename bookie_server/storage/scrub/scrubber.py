"""Runs scrubs, one after the other: when they are due, and when they are requested."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie_server.core.background.scrub import TRIES_MAX, DamagedEntries, ScrubPosition
from bookie_server.errors import CorruptRecordError
from bookie_server.ports import Future, Priority
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.scrub.file_check import FileCheck, FileOutcome
from bookie_server.storage.scrub.kept_position import keep_position, load_position
from bookie_server.storage.scrub.live_recount import LiveRecount
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import settle

BUSY_PAUSE_MS = 1_000
"""Pause while other work uses all files that are left."""


@dataclass(slots=True)
class Scrubbed:
    """The result of the part of a pass that this process has made."""

    is_whole: bool = False  # whether the pass has ended
    files: int = 0  # files that were read
    files_skipped: int = 0  # files that could not be read in several attempts
    bytes_read: int = 0
    damaged_records: int = 0
    damaged_entries: int = 0  # live entries in damaged records
    duration_ms: int = 0


class Scrubber:
    """Runs scrubs.

    A file has one owner. If compaction owns a file, the scrub reads the file later.
    """

    def __init__(self, shared: Shared, keeper: FileKeeper, reader: Reader) -> None:
        self._shared = shared
        self._keeper = keeper
        self._reader = reader
        self._recount = LiveRecount(shared, keeper, reader.rebuilds)
        self._pace = Pace(shared, shared.settings.scrub_bytes_per_s)
        self._is_loaded = False
        self._is_wanted = False
        self._waiting: list[Future[None]] = []
        self.is_running = False
        self.files_left = 0  # number of files that the running pass has not read
        self.position = ScrubPosition()
        self.damaged = DamagedEntries()
        self.on_scrubbed: Callable[[Scrubbed], None] = lambda _scrubbed: None
        # Called after damage was found, with the file's name, a ledger and its damaged entries.
        self.on_damaged: Callable[[str, int, Sequence[int]], None] = lambda *_: None

    @property
    def damaged_count(self) -> int:
        """Number of damaged entries that wait for a repair."""
        return len(self.damaged)

    async def load(self) -> None:
        """Read the position that the last process stored, unless it was already read."""
        if not self._is_loaded:
            position = await load_position(self._shared.files)
            if not self._is_loaded:  # two calls may have read the file at the same time
                self.position, self._is_loaded = position, True

    async def scrub(self) -> None:
        """Request a pass, and wait for its end."""
        done: Future[None] = self._shared.tasks.future()
        self._waiting.append(done)
        self.request()
        await done

    def request(self) -> None:
        """Continue a pass that was interrupted, or begin a new pass. If a pass runs, do nothing."""
        if not self.is_running:
            self._is_wanted = True
            self._start()

    def scrub_when_due(self) -> None:
        """If the interval of the scrub has passed, start a pass."""
        is_enabled = self._shared.settings.scrub_interval_ms > 0
        if is_enabled and not self.is_running and (not self._is_loaded or self._is_due):
            self._start()

    async def stop(self) -> None:
        """End a running pass at its next step, and begin no other pass."""
        self._pace.is_stopped = True
        if self.is_running:
            done: Future[None] = self._shared.tasks.future()
            self._waiting.append(done)
            await done

    @property
    def _is_due(self) -> bool:
        now_ms = self._shared.clock.wall_ms()
        return self.position.is_due(self._shared.settings.scrub_interval_ms, now_ms)

    def _start(self) -> None:
        self.is_running = True
        self._shared.tasks.spawn("scrub", self._run(), Priority.BACKGROUND)

    async def _run(self) -> None:
        try:
            await self.load()
            if (self._is_wanted or self._is_due) and not self._pace.must_end:
                self.on_scrubbed(await self._pass())
        finally:
            self.is_running = self._is_wanted = False
            self.files_left = 0
            settle(self._waiting)

    async def _pass(self) -> Scrubbed:
        clock, counters = self._shared.clock, self._shared.counters
        began_ms, read_before = clock.monotonic_ms(), counters.scrub_bytes
        damaged_before = counters.scrub_damaged_records, counters.scrub_damaged_entries
        result = Scrubbed()
        ids = [file.entry.file_id for file in self._keeper.finished]
        if not self.position.is_open:
            await self._keep(self.position.begun(ids, clock.wall_ms()))
        result.is_whole = await self._read_files(deque(sorted(self.position.left(ids))), result)
        if result.is_whole:
            await self._keep(self.position.ended(clock.wall_ms()))
            counters.scrubs += 1
        result.bytes_read = counters.scrub_bytes - read_before
        result.damaged_records = counters.scrub_damaged_records - damaged_before[0]
        result.damaged_entries = counters.scrub_damaged_entries - damaged_before[1]
        result.duration_ms = clock.monotonic_ms() - began_ms
        return result

    async def _read_files(self, left: deque[int], result: Scrubbed) -> bool:
        """Read all files that are left. Return False if the storage ends."""
        tries: Counter[int] = Counter()
        busy = 0  # number of consecutive files that other work uses
        while left:
            self.files_left = len(left)
            if self._pace.must_end:
                return False
            if busy >= len(left):
                busy = 0
                await self._shared.tasks.sleep(BUSY_PAUSE_MS)
                continue
            file = self._keeper.finished.get(left[0])
            if file is not None and self._is_busy(file):
                busy += 1
                left.rotate(-1)
                continue
            busy = 0
            file_id = left.popleft()
            outcome = FileOutcome.FREED if file is None else await self._read(file)
            if outcome is FileOutcome.ENDED:
                return False
            tries[file_id] += 1
            if outcome in (FileOutcome.WHOLE, FileOutcome.FREED):
                result.files += outcome is FileOutcome.WHOLE
            elif tries[file_id] < TRIES_MAX:
                left.append(file_id)
            else:
                result.files_skipped += 1
                self._shared.counters.scrub_files_skipped += 1
            await self._keep(self.position.at(left))
        return True

    def _is_busy(self, file: FinishedFile) -> bool:
        is_taken = file.entry.file_id in self._keeper.handover.owned
        return is_taken or self._reader.rebuilds.is_running(file)

    async def _read(self, file: FinishedFile) -> FileOutcome:
        check = FileCheck(self._shared, self._keeper, self._pace, file, self._note_damaged)
        outcome = await check.run()
        counters = self._shared.counters
        if outcome is FileOutcome.WHOLE:
            counters.scrub_files += 1
            await self._recount.recount(file)
        elif outcome is FileOutcome.INDEX_DAMAGED:
            counters.scrub_damaged_indexes += 1
            self._reader.rebuilds.rebuild(file)
        return outcome

    def _note_damaged(
        self, file: FinishedFile, offset: int, ledger_id: int, entry_ids: Sequence[int]
    ) -> None:
        self._let_repair(file, offset, ledger_id, entry_ids)
        self.on_damaged(file.entry.slot, ledger_id, entry_ids)

    def note_read(self, ledger_id: int, entry_id: int, error: CorruptRecordError) -> None:
        """Request the repair of an entry that a read found damaged.

        The entry is repaired only if its file is finished. The next start checks all other files.
        If the error has no offset, the index is damaged, which is rebuilt instead.
        """
        slot, offset = error.fields.get("path"), error.fields.get("offset_bytes")
        if offset is None:
            return
        for file in self._keeper.finished:
            if file.entry.slot == slot:
                self._let_repair(file, offset, ledger_id, (entry_id,))

    def _let_repair(
        self, file: FinishedFile, offset: int, ledger_id: int, entry_ids: Sequence[int]
    ) -> None:
        # A cached header could hide the damage from the add that replaces an entry.
        self._reader.forget_record(file, offset)
        self.damaged.add(ledger_id, entry_ids)

    async def _keep(self, position: ScrubPosition) -> None:
        if position != self.position:
            self.position = position
            await keep_position(self._shared.files, position)
