"""Finds and reads stored entries.

A reading is a generator that yields a `Need` each time that it needs bytes. While these bytes are
in the page cache, the reading runs within the call that starts it. From the first bytes that are
not in the page cache, it continues in a coroutine.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from heapq import merge
from io import BytesIO
from itertools import islice
from typing import NamedTuple, TypeVar

from bookie_server.core.index_format import LedgerTotal
from bookie_server.core.pieces import Piece
from bookie_server.core.record import FileIdentity, JournalRecord
from bookie_server.core.record_codec import CHUNK_SIZE, damage_at
from bookie_server.core.requests import (
    ID_MAX,
    StoredAdd,
    StoredBatchRead,
    StoredSliceRead,
    entry_head,
)
from bookie_server.errors import (
    CorruptRecordError,
    FreedFileError,
    TooManyRangesError,
    freed,
)
from bookie_server.storage import slices
from bookie_server.storage.files.entry_log_file import (
    FinishedFile,
    Need,
    OpenFile,
    find_piece,
    first_newer,
    held_spans,
    read_body,
    read_header,
)
from bookie_server.storage.files.index_rebuilds import IndexRebuilds
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.reading.entry_spans import HEAD_SIZE_BYTES, chunks_of, near_spans, split
from bookie_server.storage.reading.readings import RECORDS_PER_TURN, Readings, finish
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts
from bookie_server.storage.spans import Spans

N = TypeVar("N")
R = TypeVar("R")

BATCH_HEAD_SIZE_BYTES = 24 + 8 + 4
"""Size of a BATCH_READ answer without its entries. It counts as part of `size_bytes_max`."""
ENTRY_LENGTH_SIZE_BYTES = 4
RECORDS_PER_BATCH_MAX = 1_024
RECORDS_PER_PORTION = RECORDS_PER_TURN
"""Number of records that a batch read checks before other tasks run."""
RECORDS_CACHED_MAX = 1_024
LENGTHS_CACHED_MAX = 1 << 18
"""Maximum number of entries in the cached records, because the length of each entry is cached."""
BLOCKS_CACHED_MAX = 512
SLICES_READ_SIZE_BYTES_MAX = 8 << 20
"""Maximum number of bytes that one request for slices reads, in whole chunks. The answer ends
before the entry that would exceed this number."""
PORTION_SIZE_BYTES = 1 << 20
"""Number of bytes that a request for slices reads before other tasks run."""
LOOKS_MAX = 8
"""Maximum number of times that a reading searches for its entry. It searches again if garbage
collection or compaction frees the file in which it found the entry."""


class Found(NamedTuple):
    """The place of an entry."""

    handle: PooledFile
    record: JournalRecord
    place: int  # index of the entry in the record
    following: int  # number of next entries that have their newest copies in the same record


class Reader:
    """Reads entries of one directory, and finds the newest copy of each entry."""

    def __init__(self, shared: Shared, keeper: FileKeeper) -> None:
        self._keeper = keeper
        self._shared = shared
        self._tombstone_of = shared.states.tombstone_of
        self.rebuilds = IndexRebuilds(shared, keeper.finished)
        self._records: OrderedDict[tuple[int, int], JournalRecord] = OrderedDict()
        self._lengths_cached = 0
        self._blocks: OrderedDict[tuple[int, int], FinishedFile] = OrderedDict()
        self.readings = Readings(shared.tasks)

    def find(
        self, ledger_id: int, entry_id: int, following_max: int = ID_MAX
    ) -> Generator[Need, bytes, Found | None]:
        """Return the place of an entry, or None if no file holds the entry.

        `following_max` is the maximum number of later entries that the caller also reads from the
        same record.
        """
        holder, full = self._keeper.active, self._keeper.full
        opened = self._keeper.opened
        visited: list[tuple[FinishedFile, LedgerTotal | None]] = []
        best: Piece[JournalRecord] | Piece[int] | None = holder.index.find(ledger_id, entry_id)
        if full is not None:
            older = full.index.find(ledger_id, entry_id)
            if older is not None and (best is None or older.origin > best.origin):
                best, holder = older, full
        home: FinishedFile | None = None
        for file in self._keeper.finished.holding(ledger_id)[::-1]:
            total = file.total_of(ledger_id)
            if best is not None and total is not None and total.origin_newest < best.origin:
                continue
            piece = yield from self._piece_in(file, ledger_id, entry_id)
            visited.append((file, total))
            if piece is not None and (best is None or piece.origin > best.origin):
                best, home = piece, file
        if best is None or best.origin < self._tombstone_of(ledger_id):
            return None
        place = best.place + entry_id - best.first
        following = min(best.last - entry_id, following_max)
        if following:
            ids = range(entry_id + 1, entry_id + 1 + following)
            others = [each for each in visited if each[0] is not home]
            following = yield from self._until_newer(ledger_id, ids, best.origin, opened, others)
        target = best.target
        if isinstance(target, JournalRecord):
            return Found(holder.handle, target, place, following)
        assert home is not None
        record = yield from self._record_at(home, target)
        return Found(home.handle, record, place, following)

    def _until_newer(
        self,
        ledger_id: int,
        ids: range,
        origin: int,
        opened: Sequence[OpenFile],
        finished: Sequence[tuple[FinishedFile, LedgerTotal | None]],
    ) -> Generator[Need, bytes, int]:
        """Return the number of `ids` before the first id that has a copy newer than `origin`."""
        for open_file in opened:
            ids = range(ids.start, open_file.index.first_newer(ledger_id, ids, origin))
        for file, total in finished:
            if (
                total is not None
                and file.rebuilt is None
                and (
                    total.origin_newest <= origin
                    or total.first_entry_id >= ids.stop
                    or total.last_entry_id < ids.start
                )
            ):
                continue
            try:
                ids = range(ids.start, (yield from first_newer(file, ledger_id, ids, origin)))
            except CorruptRecordError as error:
                self._damage(error, file.identity, file)
                return 0  # so the reading searches for each later entry separately
            self._note_blocks(file)
        return len(ids)

    def _piece_in(
        self, file: FinishedFile, ledger_id: int, entry_id: int
    ) -> Generator[Need, bytes, Piece[int] | None]:
        try:
            piece = yield from find_piece(file, ledger_id, entry_id)
        except CorruptRecordError as error:
            raise self._damage(error, file.identity, file) from error
        self._note_blocks(file)
        return piece

    def _note_blocks(self, file: FinishedFile) -> None:
        """List a file's new index blocks as cached. Above the limit, drop the oldest blocks."""
        for number in reversed(file.blocks):
            key = (file.entry.file_id, number)
            if key in self._blocks:
                break  # the file's older blocks are already listed
            self._blocks[key] = file
        while len(self._blocks) > BLOCKS_CACHED_MAX:
            (_, number), owner = self._blocks.popitem(last=False)
            owner.blocks.pop(number, None)

    def _record_at(self, file: FinishedFile, offset: int) -> Generator[Need, bytes, JournalRecord]:
        key = (file.entry.file_id, offset)
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
            return record
        try:
            record = yield from read_header(file.handle, file.identity, offset)
        except CorruptRecordError as error:
            raise self._damage(error, file.identity) from error
        self._cache(key, record)
        return record

    def forget_record(self, file: FinishedFile, offset: int) -> None:
        """Remove the header of a record from the cache, so that the next use reads the file."""
        record = self._records.pop((file.entry.file_id, offset), None)
        if record is not None:
            self._lengths_cached -= len(record.lengths)

    def _cache(self, key: tuple[int, int], record: JournalRecord) -> None:
        records = self._records
        if key in records:  # another reading has read this record at the same time
            return
        records[key] = record
        self._lengths_cached += len(record.lengths)
        while len(records) > RECORDS_CACHED_MAX or self._lengths_cached > LENGTHS_CACHED_MAX:
            _, oldest = records.popitem(last=False)
            self._lengths_cached -= len(oldest.lengths)

    def _damage(
        self,
        error: CorruptRecordError,
        identity: FileIdentity,
        index_of: FinishedFile | None = None,
    ) -> CorruptRecordError:
        """Count damage, and return the error.

        If the file was freed during the read, nothing is damaged, and the error is FreedFileError.
        """
        if self._keeper.has_file(identity.file_id):
            self.rebuilds.on_damage(index_of)
            return error
        return freed(identity.name)

    def read_entry(self, ledger_id: int, entry_id: int) -> Generator[Need, bytes, bytes | None]:
        """Return one stored entry, or None if no file holds the entry."""
        return (yield from again(lambda: self._read_entry(ledger_id, entry_id)))

    def _read_entry(self, ledger_id: int, entry_id: int) -> Generator[Need, bytes, bytes | None]:
        found = yield from self.find(ledger_id, entry_id, 0)
        if found is None:
            return None
        (entry,) = yield from self._entries_of(found, ledger_id, entry_id, 1)
        return entry

    def compare(self, request: StoredAdd) -> Generator[Need | None, bytes, tuple[bool, bool]]:
        """Return whether a run is stored with the same bytes, and whether a stored entry differs.

        The reading ends when the result is known. For entries that recovery writes back, it usually
        ends after the first entry, because recovery changes the LAC in the headers. The reading
        yields None after each `RECORDS_PER_TURN` entries.
        """
        is_repeated, at = True, 0
        body = memoryview(request.body)
        for number, entry_id in enumerate(request.entry_ids):
            if number and number % RECORDS_PER_TURN == 0:
                yield None
            stored = yield from self.read_entry(request.ledger_id, entry_id)
            end = at + request.lengths[number]
            if stored is None:
                is_repeated = False
            elif body[at:end] != stored:
                return False, True
            if request.is_recovery and not is_repeated:
                break
            at = end
        return is_repeated, False

    def read_batch(self, request: StoredBatchRead) -> Generator[Need | None, bytes, list[bytes]]:
        """Return the consecutive entries that fit. If the first is not stored, the list is empty.

        The result ends after `RECORDS_PER_BATCH_MAX` records, and before a damaged entry that is
        not the first. The reading yields None after each `RECORDS_PER_PORTION` records, so that
        other tasks can run.
        """
        return (yield from again(lambda: self._read_batch(request)))

    def _read_batch(self, request: StoredBatchRead) -> Generator[Need | None, bytes, list[bytes]]:
        entries: list[bytes] = []
        count_left = request.count_max if request.count_max > 0 else 1 << 62
        budget = request.size_bytes_max - BATCH_HEAD_SIZE_BYTES
        entry_id = request.first_entry_id
        try:
            for number in range(RECORDS_PER_BATCH_MAX):
                if count_left == 0:
                    break
                if number and number % RECORDS_PER_PORTION == 0:
                    yield None
                found = yield from self.find(request.ledger_id, entry_id)
                if found is None:
                    break
                count, budget = fitting(found, count_left, budget, is_first=not entries)
                if count == 0:
                    break
                entries += yield from self._entries_of(found, request.ledger_id, entry_id, count)
                entry_id += count
                count_left -= count
        except CorruptRecordError:
            if not entries:
                raise
        return entries

    def read_slices(self, request: StoredSliceRead) -> Generator[Need | None, bytes, list[bytes]]:
        """Return one bytes object for each entry that fits: its slices, one after another.

        If the first entry is not stored, the list is empty. Only the chunks of the record that hold
        the slices or the head of the entry are read and verified. Bytes after the end of an entry
        are left out. The result ends before a missing or damaged entry that is not the first, and
        before more than `SLICES_READ_SIZE_BYTES_MAX` bytes are read. The reading yields None after
        each `RECORDS_PER_PORTION` entries, and after each MiB.
        """
        return (yield from again(lambda: self._read_slices(request)))

    def _read_slices(self, request: StoredSliceRead) -> Generator[Need | None, bytes, list[bytes]]:
        slices: list[bytes] = []
        budget = request.size_bytes_max - BATCH_HEAD_SIZE_BYTES
        read_bytes = portion_bytes = 0
        try:
            for number, (entry_id, ranges) in enumerate(request.entries):
                is_portion = number % RECORDS_PER_PORTION == 0 or portion_bytes > PORTION_SIZE_BYTES
                if number and is_portion:
                    portion_bytes = 0
                    yield None
                budget -= ENTRY_LENGTH_SIZE_BYTES + sum(length for _, length in ranges)
                if slices and budget < 0:
                    break
                found = yield from self.find(request.ledger_id, entry_id, 0)
                if found is None:
                    break
                length = found.record.lengths[found.place]
                spans = near_spans(ranges, length)
                size_bytes = min(length, sum(until - at + CHUNK_SIZE for at, until in spans))
                read_bytes += size_bytes
                portion_bytes += size_bytes
                if slices and read_bytes > SLICES_READ_SIZE_BYTES_MAX:
                    break
                ids = request.ledger_id, entry_id
                slices.append((yield from self._slices_of(found, ids, ranges, spans)))
        except CorruptRecordError:
            if not slices:
                raise
        return slices

    def _slices_of(
        self,
        found: Found,
        ids: tuple[int, int],
        ranges: Sequence[tuple[int, int]],
        spans: Sequence[tuple[int, int]],
    ) -> Generator[Need, bytes, bytes]:
        """Return the bytes of `ranges` of an entry, one range after another.

        `spans` cover the ranges and the head of the entry. All chunks that contain bytes of these
        spans are read.
        `ids` contains the ledger id and the entry id.
        """
        start, _ = found.record.span_of(found.place)
        # The head of the entry is read too, because it shows that this is the right entry.
        joined = BytesIO()
        head = b""
        left = deque(ranges)
        end = start + found.record.lengths[found.place]
        for at, edge in chunks_of(spans, start, found.record.body_size):
            data = memoryview((yield from self.body_of(found, at, edge)))
            if len(head) < HEAD_SIZE_BYTES:  # the head may be in two chunks
                head += data[max(0, start - at) : start + HEAD_SIZE_BYTES - at]
                if len(head) == HEAD_SIZE_BYTES:
                    self.check_head(found, head, *ids)
            until = min(edge, end)
            while left and start + left[0][0] < until:
                first = start + left[0][0]
                last = first + left[0][1]
                joined.write(data[max(0, first - at) : min(last, until) - at])
                if last > until:
                    break  # the next chunk has the further bytes of the range
                left.popleft()
        return joined.getvalue()

    def _entries_of(
        self, found: Found, ledger_id: int, entry_id: int, count: int
    ) -> Generator[Need, bytes, list[bytes]]:
        record = found.record
        data = yield from self.body_of(found, *record.span_of(found.place, count))
        self.check_head(found, data, ledger_id, entry_id)
        return split(data, record.lengths[found.place : found.place + count])

    def body_of(self, found: Found, start: int, end: int) -> Generator[Need, bytes, bytes]:
        """Verify the bytes from `start` to `end` of a record's body, and return them."""
        record = found.record
        if record.body is not None:
            return bytes(memoryview(record.body)[start:end])
        try:
            return (yield from read_body(found.handle, record, start, end))
        except CorruptRecordError as error:
            assert record.identity is not None
            raise self._damage(error, record.identity) from error

    def check_head(self, found: Found, data: bytes, ledger_id: int, entry_id: int) -> None:
        """Raise an error if the bytes do not begin with the head of the requested entry."""
        if entry_head(data, 0)[:2] != (ledger_id, entry_id):
            record = found.record
            assert record.identity is not None
            self.rebuilds.on_damage(None)
            reason = f"the index points to another entry than {entry_id} of ledger {ledger_id}"
            raise damage_at(record.identity, record.offset, reason)

    async def held(self, ledger_id: int, count_max: int) -> Spans:
        """Return the first and the last id of each stretch of a ledger's stored entries.

        The stretches are in ascending order. Raise TooManyRangesError if there are more than
        `count_max` stretches.
        """
        for _ in range(LOOKS_MAX - 1):
            with suppress(FreedFileError):
                return await self._held(ledger_id, count_max)
        return await self._held(ledger_id, count_max)

    async def _held(self, ledger_id: int, count_max: int) -> Spans:
        tombstone = self._tombstone_of(ledger_id)
        # There is no await between the next two lines. So an entry that moves from an open file to
        # a finished file is in at least one list.
        opened = [file.index.pieces_of(ledger_id) for file in self._keeper.opened]
        finished = list(self._keeper.finished.holding(ledger_id))
        runs = [await self._spans_of(pieces, tombstone) for pieces in opened]
        for file in finished:
            if file.rebuilt is not None:
                pieces = file.rebuilt.pieces_of(ledger_id)
                runs.append(await self._spans_of(pieces, tombstone))
            else:
                try:
                    reading = held_spans(file, ledger_id, tombstone)
                    runs.append(await finish(reading, give_way=self._shared.give_way))
                except CorruptRecordError as error:
                    raise self._damage(error, file.identity, file) from error
                await self._shared.give_way()
            if sum(map(len, runs)) > 2 * count_max:
                runs = [await self._joined(ledger_id, runs, count_max)]
        return await self._joined(ledger_id, runs, count_max)

    async def _spans_of(self, pieces: Sequence[Piece[JournalRecord]], tombstone: int) -> Spans:
        spans = Spans()
        for part in parts(pieces):
            spans.extend((p.first, p.last) for p in part if p.origin > tombstone)
            await self._shared.give_way()
        return spans

    async def _joined(self, ledger_id: int, runs: Sequence[Spans], count_max: int) -> Spans:
        """Merge several lists of stretches, which may overlap, into one list."""
        runs = [run for run in runs if run]
        joined = Spans()
        if len(runs) == 1:
            joined = runs[0]
        else:
            spans = merge(*runs)
            # The loop ends when there are more than `count_max` stretches. This limits the memory,
            # because the lists of all files are in memory too.
            while len(joined) <= count_max and (part := list(islice(spans, slices.UNITS_PER_TURN))):
                joined.extend(part)
                await self._shared.give_way()
        if len(joined) > count_max:
            raise TooManyRangesError(
                f"the entries of ledger {ledger_id} on this bookie form more than {count_max} "
                "ranges, too many for one list: read the entries instead",
                path=".",
                ledger_id=ledger_id,
                count_max=count_max,
            )
        return joined


def again(look: Callable[[], Generator[N, bytes, R]]) -> Generator[N, bytes, R]:
    """Run the reading `look`. If its file was freed, run it again, at most `LOOKS_MAX` times."""
    for _ in range(LOOKS_MAX - 1):
        with suppress(FreedFileError):
            return (yield from look())
    return (yield from look())


def fitting(found: Found, count_max: int, budget: int, *, is_first: bool) -> tuple[int, int]:
    """Return how many entries from `found` on fit into `budget`, and the bytes that are left."""
    available = min(found.following + 1, count_max)
    lengths = found.record.lengths[found.place : found.place + available]
    size_bytes = sum(lengths) + ENTRY_LENGTH_SIZE_BYTES * len(lengths)
    if size_bytes <= budget:
        return len(lengths), budget - size_bytes
    count = 0
    for length in lengths:
        budget -= ENTRY_LENGTH_SIZE_BYTES + length
        if budget < 0 and not (is_first and count == 0):
            break
        count += 1
    return count, budget
