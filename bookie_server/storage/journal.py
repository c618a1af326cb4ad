"""The journal: writes records in order and syncs them in groups.

A group consists of the records that were queued while the previous group was written and synced. If
no records were queued, the next record is synced immediately and alone. A group is written only
after the sync of the previous group. Therefore a crash can tear only the last group, and records
are synced in the order of the file (FORMATS.md#order-of-durability).

A full group is passed to the file system before the end of the previous write. The file system
writes the full group immediately after the previous sync (`File.write_synced`). Therefore the
device is busy while the event loop reports one group and composes the next group.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bookie_server.core.pieces import stretches_at_most
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import ALIGNMENT, encode_header, size_at_most
from bookie_server.errors import StorageError
from bookie_server.ports import Buffer, Future
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.modes.writers import DirectWriter, Group, GroupWriter
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import call_back, settle
from ledgerlog_spark.model import Code

PADDING = bytes(ALIGNMENT)
GROUPS_UNDER_WAY_MAX = 2
GROUP_RECORDS_MAX = 2_000  # encoding or answering this many records takes 10 to 20 ms
GROUP_STRETCHES_MAX = 10_000
"""Maximum number of stretches of consecutive ids in a group. Indexing them takes up to 10 ms."""
JOIN_SIZE_MAX = 8_192
"""If a record has at most this size, its parts are joined before the write, because a copy is then
faster than a write of three buffers."""


class JournalFiles(Protocol):
    """The owner of the files that a journal writes."""

    @property
    def active(self) -> OpenFile:
        """The file to which the next group is written."""

    def must_roll(self, size: int, stretches: int) -> bool:
        """Return whether a record of `size` bytes must go to the next file.

        `stretches` is the number of stretches of consecutive ids in the record and in all records
        that are not yet durable.
        """

    async def roll(self) -> None:
        """Make the next file active. If the disk has no room for a next file, change nothing."""


class Journal:
    """Takes records, makes them durable in groups, and reports them in order."""

    def __init__(
        self,
        shared: Shared,
        files: JournalFiles,
        on_stored: Callable[[list[JournalRecord], bool], None],
        on_failed: Callable[[StorageError, list[JournalRecord]], None],
    ) -> None:
        self._files = files
        self._tasks = shared.tasks
        self._clock = shared.clock
        self._settings = shared.settings
        self._sequences = sequences = shared.sequences  # durable_sequence < next_sequence
        self._counters = shared.counters
        self._on_stored = on_stored
        self._writer: GroupWriter = DirectWriter()
        self._on_failed = on_failed
        self._queue: deque[JournalRecord] = deque()  # records without a group, in order of tickets
        self._queued_bytes = 0  # sum of the body sizes in `_queue`
        self._under_way = 0  # number of groups being written or synced, <= GROUPS_UNDER_WAY_MAX
        self._stretches_under_way = 0  # number of stretches of consecutive ids in these groups
        self._waiting: list[Future[None]] = []  # futures of writers without a group to write
        self._is_waking = False  # whether a writer was woken and has not checked the queue yet
        self._is_waiting_for_more = False  # whether the queued records wait for a fuller group
        self._is_rolling = False  # whether `_roll` runs; no group is written meanwhile
        self._is_broken = False  # a group may be missing in the file, so no other group is written
        self._busy_until_ms = 0  # the time up to which `journal_busy_ms` is counted
        self._running = 0  # number of writers; when the last writer ends, `_ended` is set
        self._ended: Future[None] = self._tasks.future()
        # a heap of (ticket, number, callback) for the tickets above `durable_ticket`, with the
        # lowest ticket first; the number decides the order of callbacks with the same ticket
        self._waiters: list[tuple[int, int, Callable[[Code], None]]] = []
        self._waiter_number = 0  # number of the newest waiter; each waiter gets the next number
        self._is_closing = False  # once True, no record is submitted
        self._watermark_is_due = False  # whether the task that writes the next watermark runs
        # a watermark in the files proves that all records before this sequence are synced
        self._watermark_sequence = sequences.durable_sequence = sequences.next_sequence - 1
        self.failure: StorageError | None = None  # the first error; no record is submitted after it
        self.last_ticket = 0  # ticket of the newest record; durable_ticket <= last_ticket
        self.durable_ticket = 0  # the records of all tickets up to this ticket are synced
        self._written_ticket = 0  # last written record's ticket; from durable_ticket to last_ticket

    def records_queued(self) -> int:
        """Return the number of accepted records that have no place in a file yet."""
        return len(self._queue)

    def submit(self, record: JournalRecord) -> int:
        """Queue a record, return its ticket, and later call `on_stored` or `on_failed` once."""
        assert not self._is_closing
        assert self.failure is None
        self.last_ticket = ticket = self.last_ticket + 1
        record.ticket = ticket
        self._queue.append(record)
        self._queued_bytes += record.body_size
        if self._settings.mode_settings.group_wait_ms and len(self._queue) == 1:
            self._is_waiting_for_more = True
            self._tasks.spawn("wait for a fuller group", self._end_wait(ticket))
        self._wake_if_due()
        return ticket

    async def _end_wait(self, ticket: int) -> None:
        """Wait, then allow the group that begins with `ticket` to be written before it is full."""
        await self._tasks.sleep(self._settings.mode_settings.group_wait_ms)
        if self._queue and self._queue[0].ticket == ticket:
            self._is_waiting_for_more = False
            self._wake_if_due()

    def when_durable(self, ticket: int, callback: Callable[[Code], None]) -> None:
        """Call `callback` with OK after the ticket's record is synced, or IO_ERROR on a failure."""
        if self.failure is not None:
            callback(Code.IO_ERROR)
        elif ticket <= self.durable_ticket:
            callback(Code.OK)
        else:
            self._waiter_number += 1
            heapq.heappush(self._waiters, (ticket, self._waiter_number, callback))
            if ticket <= self._written_ticket:
                self._writer.sync_soon()

    def start(self, writer: GroupWriter) -> None:
        """Start to write submitted records with `writer`."""
        self._writer = writer
        for _ in range(GROUPS_UNDER_WAY_MAX):
            self._running += 1
            self._tasks.spawn("journal writer", self._run())

    async def close(self) -> None:
        """Write and sync the queued records, then stop."""
        self._is_closing = True
        settle(self._waiting)
        await self._ended

    def fail(self, error: StorageError) -> None:
        """Stop all writing.

        Report the queued records as lost, and end all waits for tickets with IO_ERROR.
        """
        if self.failure is not None:
            return
        self.failure = error
        self._report_failure(error, [])
        settle(self._waiting)

    async def _run(self) -> None:
        """Run one of the writers. A writer writes one group at a time."""
        group: list[JournalRecord] = []
        try:
            while await self._is_there_a_group():
                group, stretches, start, buffers = self._take_group()
                self._under_way += 1
                self._stretches_under_way += stretches
                self._wake_if_due()
                began_ms = self._clock.monotonic_ms()
                is_synced = await self._writer.write(
                    Group(self._files.active, start, buffers, group)
                )
                self._under_way -= 1
                self._stretches_under_way -= stretches
                self._count_busy(began_ms)
                if self._is_broken:
                    return
                if self.failure is not None:
                    self._report_failure(self.failure, group)
                    return
                self._complete(group, is_synced=is_synced)
                group = []
        except StorageError as error:
            self.failure = self.failure or error
            self._report_failure(error, group)
        except BaseException:
            # There is a bug, or the process ends. The other writer must not write, because a group
            # may be missing in the file.
            self._is_broken = True
            raise
        finally:
            self._running -= 1
            settle(self._waiting)
            if not self._running:
                settle([self._ended])

    async def _is_there_a_group(self) -> bool:
        """Wait until this writer can write a group; return False if the journal has ended."""
        while True:
            has_stopped = self._is_broken or self.failure is not None
            if has_stopped or (self._is_closing and not self._queue):
                return False
            if self._is_due:
                if not self._must_roll(self._queue[0]):
                    return True
                await self._roll()
                return self.failure is None
            if not self._queue and not self._under_way:
                self._write_watermark_when_idle()
            waiting: Future[None] = self._tasks.future()
            self._waiting.append(waiting)
            await waiting
            self._is_waking = False

    async def _roll(self) -> None:
        """Make the next file active. While this method runs, no group is being written."""
        assert not self._under_way
        self._is_rolling = True
        try:
            # The first record of a file proves that all records of the previous file are synced.
            await self._writer.sync_now()
            await self._files.roll()
        finally:
            self._is_rolling = False

    @property
    def _is_due(self) -> bool:
        """Whether a group is due. While another group is being written, this group must be full."""
        if self._is_rolling or not self._queue:
            return False
        is_full = (
            self._queued_bytes >= self._settings.group_bytes
            or len(self._queue) >= GROUP_RECORDS_MAX
        )
        if not self._under_way:
            return is_full or self._is_closing or not self._is_waiting_for_more
        return (
            self._under_way < GROUPS_UNDER_WAY_MAX
            and is_full
            and not self._must_roll(self._queue[0])
        )

    def _must_roll(self, record: JournalRecord) -> bool:
        """Return whether the next group, which begins with `record`, needs the next file."""
        stretches = self._stretches_under_way + stretches_at_most(record.entry_ids)
        return self._files.must_roll(size_at_most(record), stretches)

    def _count_busy(self, began_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._counters.journal_busy_ms += now_ms - max(began_ms, self._busy_until_ms)
        self._busy_until_ms = now_ms

    def _wake_if_due(self) -> None:
        if self._waiting and not self._is_waking and self._is_due:
            self._is_waking = True
            settle([self._waiting.pop()])

    def _take_group(self) -> tuple[list[JournalRecord], int, int, list[Buffer]]:
        """Take a group, and return its records, number of stretches of ids, offset and buffers."""
        self._is_waiting_for_more = False
        active = self._files.active
        start = offset = active.end
        group: list[JournalRecord] = []
        buffers: list[Buffer] = []
        queue, files = self._queue, self._files
        size_max = self._settings.group_bytes
        sequence, durable_upto = self._sequences.next_sequence, self._sequences.durable_sequence
        identity = active.identity
        stretches, under_way = 0, self._stretches_under_way
        while queue and offset - start < size_max and len(group) < GROUP_RECORDS_MAX:
            record = queue[0]
            stretches_now = stretches + stretches_at_most(record.entry_ids)
            if group and (
                stretches_now > GROUP_STRETCHES_MAX
                or files.must_roll(size_at_most(record), under_way + stretches_now)
            ):
                break
            stretches = stretches_now
            queue.popleft()
            self._queued_bytes -= record.body_size
            record.identity, record.offset = identity, offset
            record.sequence, record.durable_upto = sequence, durable_upto
            record.origin_sequence = record.origin_sequence or sequence
            sequence += 1
            active.end = offset = offset + append_encoded(record, buffers)
            group.append(record)
        self._sequences.next_sequence = sequence
        self._counters.journal_bytes_written += offset - start + append_end_mark(active, buffers)
        return group, stretches, start, buffers

    def _complete(self, group: list[JournalRecord], *, is_synced: bool) -> None:
        counters = self._counters
        counters.journal_records += len(group)
        counters.journal_groups += 1
        counters.journal_syncs += is_synced
        last = group[-1]
        self._written_ticket = last.ticket
        if is_synced:
            self._advance(last.sequence, last.ticket)
        if last.kind is JournalRecordKind.WATERMARK and last.durable_upto == last.sequence - 1:
            self._watermark_sequence = last.sequence
        self._on_stored(group, is_synced)
        self._wake_waiters()
        if not is_synced and self._waiters and self._waiters[0][0] <= last.ticket:
            self._writer.sync_soon()

    def note_synced(self, sequence: int, ticket: int) -> None:
        """Report that written records up to this sequence are synced."""
        self._advance(sequence, ticket)
        self._wake_waiters()

    def _advance(self, sequence: int, ticket: int) -> None:
        sequences = self._sequences
        sequences.durable_sequence = max(sequences.durable_sequence, sequence)
        self.durable_ticket = max(self.durable_ticket, ticket)

    def _wake_waiters(self) -> None:
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.durable_ticket:
            call_back(self._tasks, heapq.heappop(waiters)[2], Code.OK)

    def _report_failure(self, error: StorageError, group: list[JournalRecord]) -> None:
        lost = [*group, *self._queue]
        self._queue.clear()
        self._queued_bytes = 0
        waiters, self._waiters = self._waiters, []
        self._on_failed(error, lost)
        for _, _, callback in sorted(waiters, key=lambda waiter: waiter[:2]):
            call_back(self._tasks, callback, Code.IO_ERROR)

    def _write_watermark_when_idle(self) -> None:
        """Start a task that waits for an idle time, then writes a watermark for the last group."""
        durable = self._sequences.durable_sequence
        if self._watermark_is_due or self._watermark_sequence >= durable:
            return
        if self.durable_ticket < self._written_ticket:
            return  # a watermark must not cover records that are not synced
        self._watermark_is_due = True
        self._tasks.spawn("watermark", self._write_watermark())

    async def _write_watermark(self) -> None:
        seen = -1
        while seen != self.last_ticket:
            seen = self.last_ticket
            await self._tasks.sleep(self._settings.idle_watermark_ms)
        self._watermark_is_due = False
        if self.failure is None and not self._is_closing:
            self.submit(JournalRecord(JournalRecordKind.WATERMARK))


def append_end_mark(file: OpenFile, buffers: list[Buffer]) -> int:
    """Append the end mark of a recycled file to `buffers`, and return the size of the mark.

    If the file is not recycled or has no room for the mark, append nothing and return 0. The next
    group overwrites the mark. Without the mark, a replay could not distinguish the bytes of the
    previous file in the slot from a torn record.
    """
    if not file.is_recycled or file.end + ALIGNMENT > file.entry.size_bytes:
        return 0
    buffers.append(PADDING)
    return ALIGNMENT


def append_encoded(record: JournalRecord, buffers: list[Buffer]) -> int:
    """Append the bytes of a record and its padding to `buffers`, and return the number of bytes.

    The record must already have its place in the file.
    """
    header = encode_header(record)
    body = record.body
    size = len(header) + record.body_size
    padded = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    if size <= JOIN_SIZE_MAX:
        buffers.append(b"".join((header, body or b"", PADDING[: padded - size])))
        return padded
    buffers.append(header)
    assert body is not None
    buffers.append(body)
    if padded != size:
        buffers.append(PADDING[: padded - size])
    return padded
