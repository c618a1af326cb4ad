"""One compaction: chooses files (the sources), copies them, and replaces them with the copies.

One MANIFEST makes this switch. Before it is written, the file of the copies is finished and synced.
In one turn of the event loop, the last copies become readable, and the next MANIFEST is set to list
them instead of the sources. Reads still use the sources until that MANIFEST is durable. The slots
of the sources become free when all running readings of the sources have ended. If the disk has no
room for the MANIFEST, the sources stay, and the copies are removed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bookie_server.core.background.compaction import Candidate, Withdrawals, chosen
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import DiskFullError, TooManyFilesError
from bookie_server.storage.compaction.copying import Copying, CopyOutcome
from bookie_server.storage.compaction.draft import Draft
from bookie_server.storage.compaction.live import LiveEntries
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.handover import Borrowed, Switch
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.room import INDEX_BYTES_BESIDE
from bookie_server.storage.shared import Shared

SLACK_FRACTION = 8  # the copy of a file may exceed the estimate by 1/8


@dataclass(slots=True)
class Compacted:
    """The result of one compaction."""

    live_percent: int  # the threshold: files of which a smaller part is live are compacted
    files_freed: int = 0
    files_written: int = 0
    files_withdrawn: int = 0  # files that stay, because they could not be read
    bytes_copied: int = 0  # size of the copied entries
    bytes_freed: int = 0  # size of the freed files, less the size of the written files
    duration_ms: int = 0
    refusal: str = ""  # why some of the chosen files stay, if an operation was refused


class Cycle:
    """One compaction. `withdrawals` are the files that earlier compactions could not read."""

    def __init__(
        self, shared: Shared, keeper: FileKeeper, pace: Pace, withdrawals: Withdrawals
    ) -> None:
        self._shared = shared
        self._keeper = keeper
        self._handover = keeper.handover
        self._pace = pace
        self._withdrawals = withdrawals
        self._queue: deque[Copying] = deque()
        self._result = Compacted(0)

    async def run(self, live_percent: int) -> Compacted:
        """Compact the files of which less than `live_percent` % is live."""
        counters, clock = self._shared.counters, self._shared.clock
        self._result = result = Compacted(live_percent)
        began_ms, copied = clock.monotonic_ms(), counters.compaction_bytes_copied
        files = {file.entry.file_id: file for file in self._keeper.finished if file.live}
        unread = self._withdrawals.waiting(files.keys(), began_ms)
        sources = self._sources(files, unread, live_percent)
        weak = unread | {file.entry.file_id for file in sources}
        live = LiveEntries(self._shared, self._keeper, self._pace, weak)
        self._queue.extend(Copying(self._shared, file, live, self._pace) for file in sources)
        while self._queue and not self._pace.must_end:
            if not await self._write_one():
                break
        result.bytes_copied = counters.compaction_bytes_copied - copied
        result.duration_ms = clock.monotonic_ms() - began_ms
        counters.compactions += bool(sources)
        counters.compaction_bytes_freed += max(0, result.bytes_freed)
        counters.compaction_sources_withdrawn += result.files_withdrawn
        return result

    def _sources(
        self, files: dict[int, FinishedFile], unread: set[int], live_percent: int
    ) -> list[FinishedFile]:
        """Return the files to compact, in order of compaction. Dead files need no compaction.

        When the doubt is over, each damaged file is compacted, because its lost records are already
        repaired, and because the file would hide further losses as long as it exists.
        """
        health = self._shared.health
        unfit = unread | health.unknown_files
        candidates = [
            Candidate(file_id, file.live_bytes, file.data_bytes)
            for file_id, file in files.items()
            if file_id not in unfit
        ]
        wanted = chosen(candidates, live_percent)
        damaged = [each for each in candidates if each.file_id in health.damaged_files]
        wanted += [each for each in damaged if each not in wanted]
        return [files[file.file_id] for file in wanted]

    async def _write_one(self) -> bool:
        """Write one file of copies and switch to it. Return whether another file may follow."""
        draft = await self._begin()
        if draft is None:
            return False
        copied: list[FinishedFile] = []
        goes_on = False
        try:
            is_whole = await self._fill(draft, copied)
            goes_on = is_whole and await self._switch(draft, copied)
        except (DiskFullError, TooManyFilesError) as error:
            self._result.refusal = error.message
        if self._handover.draft is not None and not self._shared.health.has_failed:
            await self._discard(draft)
        self._handover.borrowed = None
        self._handover.owned.clear()
        self._handover.taken.discard(draft.file.entry.slot)
        return goes_on

    async def _begin(self) -> Draft | None:
        """Prepare a draft, or return None if there is no room."""
        keeper, handover = self._keeper, self._handover
        file_id, free = keeper.new_file_id(), keeper.free_slots
        handover.taken.update(free)
        try:
            needed_bytes = RECORDS_START + needed_for(self._queue[0].source) + INDEX_BYTES_BESIDE
            file = await keeper.slots.prepare_draft(file_id, free, needed_bytes)
        except (DiskFullError, TooManyFilesError) as error:
            self._result.refusal = error.message
            return None
        finally:
            handover.taken.difference_update(free)
        handover.taken.add(file.entry.slot)
        handover.draft = file
        draft = Draft(self._shared, file, self._pace)
        source = self._queue[0].source
        if draft.may_fit(needed_for(source), pieces_of(source)):
            handover.borrowed = Borrowed(file.entry.slot, file.entry.size_bytes)
        # After a crash, no other file may get the id of the draft, because the slot may be used
        # again, and old records of the draft must not look like records of the new file. So the
        # next file id is committed first.
        await keeper.commit_soon()
        if self._shared.store.current.next_file_id > file_id and not self._pace.must_end:
            return draft
        handover.borrowed = None
        if not self._shared.health.has_failed:
            await self._discard(draft)
        handover.taken.discard(file.entry.slot)
        self._refuse_without_commit()
        return None

    async def _fill(self, draft: Draft, copied: list[FinishedFile]) -> bool:
        """Copy files until the draft is full. Return False if the storage ends."""
        while self._queue:
            copying = self._queue[0]
            file_id = copying.source.entry.file_id
            if file_id not in self._keeper.finished:
                self._queue.popleft()  # the keeper has freed this file without live entries
                continue
            if copied and not draft.may_fit(needed_for(copying.source)):
                break
            self._handover.owned.add(file_id)
            outcome = await copying.into(draft)
            if outcome is CopyOutcome.ENDED:
                return False
            if outcome is CopyOutcome.FULL:
                break
            self._queue.popleft()
            if outcome is CopyOutcome.WHOLE:
                copied.append(copying.source)
                continue
            self._handover.owned.discard(file_id)
            if outcome is CopyOutcome.DEAD:
                self._keeper.wake()  # now the keeper may free the file
            else:
                self._withdrawals.add(file_id, self._shared.clock.monotonic_ms())
                self._result.files_withdrawn += 1
        return True

    async def _switch(self, draft: Draft, copied: list[FinishedFile]) -> bool:
        """Make the copies durable and free their sources. Return whether this succeeded."""
        keeper, handover = self._keeper, self._handover
        if not draft.records and not copied:
            return True
        copies: FinishedFile | None = None
        switch = Switch(None, ())
        if draft.records:
            switch.copies = copies = await draft.finish()
            handover.owned.add(copies.entry.file_id)
            handover.switch = switch
            for _ in keeper.finished.adding(copies):
                await self._shared.give_way()
            # No other task runs between the last slice and this line. So at any time, the draft or
            # a finished file lists the ledgers of the copies, and these ledgers are not forgotten.
            handover.draft = None
        doubts = self._shared.health.files_in_doubt
        switch.sources = tuple(file for file in copied if file.entry.file_id not in doubts)
        if copies is not None:
            is_repaid = handover.borrowed is not None and bool(switch.sources)
            handover.borrowed = Borrowed(copies.entry.slot, copies.end) if is_repaid else None
        switch.is_due = True
        handover.switch = switch
        sizes = sum(size_of(file) for file in switch.sources)
        await keeper.commit_soon()
        if not switch.is_done:
            # There is no room for a MANIFEST, so the sources stay. No later MANIFEST may list the
            # copies.
            switch.is_due = False
            if copies is not None and not self._shared.health.has_failed:
                await keeper.withdraw(copies)
            handover.switch = None
            self._refuse_without_commit()
            return False
        result = self._result
        result.files_freed += len(switch.sources)
        result.files_written += copies is not None
        result.bytes_freed += sizes - (0 if copies is None else copies.end)
        return True

    def _refuse_without_commit(self) -> None:
        if not self._pace.must_end and not self._shared.health.has_failed:
            self._result.refusal = "no MANIFEST was written: no room, or too many open files"

    async def _discard(self, draft: Draft) -> None:
        """Remove a draft, whose entries were never readable."""
        self._handover.draft = None
        await self._keeper.slots.discard(draft.file)


def needed_for(file: FinishedFile) -> int:
    """Estimate the bytes that the live entries of a file need in a draft."""
    return _live_part(file, file.entry.data_end - RECORDS_START)


def pieces_of(file: FinishedFile) -> int:
    """Estimate the number of pieces that the live entries of a file form."""
    return _live_part(file, 0 if file.head is None else file.head.pieces)


def _live_part(file: FinishedFile, whole: int) -> int:
    live = whole * file.live_bytes // max(file.data_bytes, 1)
    return live + live // SLACK_FRACTION


def size_of(file: FinishedFile) -> int:
    """Return the bytes that a finished file takes on the device."""
    return file.entry.size_bytes if file.head is None else file.end
