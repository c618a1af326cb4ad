"""Reads the records of files, and finds the next valid record after damage."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from bookie_server.core.manifest_codec import FileEntry
from bookie_server.core.record import (
    KINDS_READ,
    FileIdentity,
    JournalRecord,
    JournalRecordKind,
)
from bookie_server.core.record_codec import (
    ALIGNMENT,
    CHUNK_SIZE,
    MAGIC,
    aligned,
    check_chunks,
    decode_header,
    header_size_at,
)
from bookie_server.core.replay_decision import FileScan, Gap
from bookie_server.core.requests import entry_head
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import CorruptRecordError, FormatVersionError
from bookie_server.ports import File, Priority
from bookie_server.storage.files.entry_log_file import HEADER_READ_SIZE, Need

R = TypeVar("R")

WINDOW_SIZE = 1 << 20


class Reads(Protocol):
    """The method of `File` that a window needs."""

    async def read(self, offset: int, size: int, priority: Priority = ...) -> bytes:
        """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier."""


class FileWindow:
    """Reads a file from start to end in large blocks."""

    def __init__(self, handle: Reads, end: int, window_size: int = WINDOW_SIZE) -> None:
        self._handle = handle
        self._window_size = window_size
        self._start = 0
        self._data = b""
        self.end = end
        self.read_bytes = 0  # number of bytes that were read from the file

    async def get(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier."""
        size = max(0, min(size, self.end - offset))
        start = offset - self._start
        if start < 0 or start + size > len(self._data):
            read_size = min(max(size, self._window_size), self.end - offset)
            self._data = await self._handle.read(offset, read_size, Priority.BACKGROUND)
            self.read_bytes += len(self._data)
            self._start = offset
            start = 0
        return self._data[start : start + size]


async def run_in_window(reading: Generator[Need, bytes, R], window: FileWindow) -> R:
    """Run the generator `reading`, and give it the bytes of a file from a window of this file."""
    try:
        need = next(reading)
        while True:
            need = reading.send(await window.get(need.offset, need.size))
    except StopIteration as end:
        result: R = end.value
        return result


class Headers:
    """Finds the headers of the records of a file, up to the end of a window."""

    def __init__(self, window: FileWindow, identity: FileIdentity) -> None:
        self._window = window
        self._identity = identity

    async def at(self, offset: int) -> JournalRecord | None:
        """Return the record at `offset` without its body, or None if its header is not valid."""
        data = await self._window.get(offset, HEADER_READ_SIZE)
        try:
            size = header_size_at(data, self._identity, offset)
            if size > len(data):
                data = await self._window.get(offset, size)
            return decode_header(data, self._identity, offset)
        except CorruptRecordError:
            return None

    async def next_after(self, offset: int) -> JournalRecord | None:
        """Return the first record with a valid header after damage at `offset`, or None."""
        mine = self._identity.file_id.to_bytes(8, "big")
        at = offset + ALIGNMENT
        while at < self._window.end:
            data = await self._window.get(at, WINDOW_SIZE)
            found = data.find(MAGIC)
            while found >= 0:
                # A recycled slot may be full of records of its previous file. They are skipped
                # without verification.
                is_mine = data[found + 16 : found + 24] == mine
                if is_mine and (at + found) % ALIGNMENT == 0:
                    record = await self.at(at + found)
                    if record is not None:
                        return record
                found = data.find(MAGIC, found + 1)
            # Records start at multiples of 512, so no `MAGIC` of a record crosses two windows.
            at += max(len(data) // ALIGNMENT, 1) * ALIGNMENT
        return None


class Scanner:
    """Scans one file from its first record."""

    def __init__(self, handle: File, entry: FileEntry, end: int) -> None:
        self._window = FileWindow(handle, end)
        self._identity = entry.identity
        self._headers = Headers(self._window, entry.identity)

    async def scan(self, first_sequence: int, *, may_lack_finish: bool = False) -> FileScan:
        """Return all records up to a finish record or the end of the file.

        The first record has `first_sequence`. If `may_lack_finish` is True, `first_sequence` may be
        the sequence of the previous file's finish record, which is missing. In this case, the first
        record of this file has the next sequence.
        """
        scan = FileScan(records_start=RECORDS_START, next_sequence=first_sequence)
        offset = RECORDS_START
        if may_lack_finish:
            first = await self._headers.at(offset)
            scan.next_sequence += first is not None and first.sequence == first_sequence + 1
        while True:
            record = await self._headers.at(offset)
            if record is None or record.sequence < scan.next_sequence:
                found = await self._headers.next_after(offset)
                sector = await self._window.get(offset, ALIGNMENT)
                is_blank = found is None and is_unused(sector, self._identity.file_id)
                scan.gaps.append(Gap(offset, scan.next_sequence, None, is_blank))
                if found is None:
                    return scan
                offset = found.offset
                scan.next_sequence = found.sequence
                record = found
            elif record.sequence > scan.next_sequence:
                scan.gaps.append(Gap(offset, scan.next_sequence))
            if record.kind not in KINDS_READ:
                raise FormatVersionError(
                    f"{self._identity.name} has a record of kind {record.kind.name} at byte "
                    f"{offset}: a later version of ledgerlog wrote it; start that version",
                    path=self._identity.name,
                    version=record.kind.name,
                )
            scan.next_sequence = record.sequence + 1
            if await self._body_is_good(record):
                scan.records.append(record)
                if record.kind is JournalRecordKind.FINISH:
                    return scan
            else:
                scan.gaps.append(Gap(offset, record.sequence, record))
            offset += aligned(record.size)

    async def _body_is_good(self, record: JournalRecord) -> bool:
        """Verify the body chunk by chunk, and set the record's `last_add_confirmed`."""
        body = record.offset + record.header_size
        heads = b""
        spans = head_spans(record)
        for number in range(len(record.chunk_checksums)):
            start = number * CHUNK_SIZE
            size = min(CHUNK_SIZE, record.body_size - start)
            data = await self._window.get(body + start, size)
            try:
                if len(data) != size:
                    return False
                check_chunks(record, number, data)
            except CorruptRecordError:
                return False
            for first, end in spans:
                low, high = max(first, start), min(end, start + size)
                if low < high:
                    heads += data[low - start : high - start]
        if record.kind is JournalRecordKind.RUN:
            record.last_add_confirmed = max(
                entry_head(heads, place)[2] for place in range(0, len(heads), 24)
            )
        return True


def is_unused(sector: bytes, file_id: int) -> bool:
    """Return whether a sector contains only zeros, or the start of a record of another file."""
    if not any(sector):
        return True
    return sector[:4] == MAGIC and sector[16:24] != file_id.to_bytes(8, "big")


def head_spans(record: JournalRecord) -> list[tuple[int, int]]:
    """Return the places (start, end) of the heads of the first and the last entry in a body.

    A head has the ids and the LAC of an entry. If the record is not a run, return an empty list.
    """
    if record.kind is not JournalRecordKind.RUN:
        return []
    spans = [(0, 24)]
    if len(record.lengths) > 1:
        last = record.body_size - record.lengths[-1]
        spans.append((last, last + 24))
    return spans
