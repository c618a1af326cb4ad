"""Writes the file of the copies. No MANIFEST lists the file before it is finished and synced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bookie_server.core.index_format import decode_index_head
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.pieces import stretches_at_most
from bookie_server.core.record import COPIES_FIRST_SEQUENCE, JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import (
    CHUNK_SIZE,
    aligned,
    chunk_checksums,
    encode_header,
    size_at_most,
)
from bookie_server.core.settings import KIBIBYTE, MEBIBYTE
from bookie_server.ports import Buffer
from bookie_server.storage.compaction.pace import RECORD_COST_BYTES, Pace
from bookie_server.storage.files.active_index import lists_bytes_at_most
from bookie_server.storage.files.entry_log_file import FinishedFile, OpenFile
from bookie_server.storage.files.room import (
    INDEX_BYTES_PER_PIECE,
    PIECES_PER_STRETCH_MAX,
    room_left,
)
from bookie_server.storage.files.slots import write_header
from bookie_server.storage.journal import append_encoded
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import run_in_slices

PORTION_SIZE_BYTES = 256 * KIBIBYTE
"""Number of bytes that are read or written before other tasks run."""
PIECES_MAX = 25_000
LISTS_BYTES_MAX = 8 * MEBIBYTE
"""`PIECES_MAX` and `LISTS_BYTES_MAX` limit the memory for the draft's index to about 16 MiB."""
INDEX_BYTES_PER_LEDGER = 48


class Draft:
    """The file that compaction writes."""

    def __init__(self, shared: Shared, file: OpenFile, pace: Pace) -> None:
        self._shared = shared
        self._pace = pace
        self._next_sequence = COPIES_FIRST_SEQUENCE
        self._buffers: list[Buffer] = []
        self._start = file.end  # offset of the first byte of `_buffers`
        self.file = file
        self.records = 0

    def has_room_for(self, record: JournalRecord) -> bool:
        """Return whether the copy `record` fits into the draft.

        The first copy always fits, because an empty draft has room for any record.
        """
        settings, index = self._shared.settings, self.file.index
        pieces = PIECES_PER_STRETCH_MAX * stretches_at_most(record.entry_ids)
        lists_bytes = index.lists_bytes + lists_bytes_at_most(record)
        size = size_at_most(record) + pieces * INDEX_BYTES_PER_PIECE + INDEX_BYTES_PER_LEDGER
        return not self.records or (
            self.may_fit(size, pieces)
            and lists_bytes <= min(LISTS_BYTES_MAX, settings.lists_bytes_max)
        )

    def may_fit(self, needed_bytes: int, pieces: int = 0) -> bool:
        """Return whether the draft has room for these bytes of copies and for these pieces.

        `needed_bytes` includes the bytes that these pieces take in the index.
        """
        index = self.file.index
        if index.pieces + pieces > min(PIECES_MAX, self._shared.settings.pieces_max):
            return False
        return needed_bytes + INDEX_BYTES_PER_LEDGER * index.ledgers <= room_left(self.file)

    async def append(self, record: JournalRecord, body: AsyncIterator[bytes]) -> None:
        """Append a copy. `body` yields the verified bytes of the record's entries in parts.

        If `body` raises an error, the draft does not contain the copy.
        """
        file = self.file
        record.identity, record.offset = file.identity, file.end
        if record.body_size <= PORTION_SIZE_BYTES:
            record.body = b"".join([part async for part in body])
            record.sequence = self._next_sequence
            size = append_encoded(record, self._buffers)
            record.body = None
        else:
            size = await self._append_large(record, body)
        self._next_sequence += 1
        file.end += size
        file.index.insert(record)
        self.records += 1
        self._shared.counters.compaction_bytes_copied += record.body_size
        await self._pace.spend(max(0, RECORD_COST_BYTES - size))
        if file.end - self._start >= PORTION_SIZE_BYTES:
            await self._write_buffers()

    async def _append_large(self, record: JournalRecord, body: AsyncIterator[bytes]) -> int:
        """Write the body in portions, then the header, which contains checksums of the body."""
        await self._write_buffers()
        assert record.identity is not None
        seed = record.identity.seed_at(record.offset)
        record.sequence = self._next_sequence
        record.chunk_checksums = (0,) * -(-record.body_size // CHUNK_SIZE)
        start = at = record.offset + len(encode_header(record))
        checksums: list[int] = []
        left = b""
        async for part in body:
            left += part
            while len(left) >= PORTION_SIZE_BYTES:
                portion, left = left[:PORTION_SIZE_BYTES], left[PORTION_SIZE_BYTES:]
                checksums += chunk_checksums(portion, seed)
                await self._pace.write(self.file.handle, at, [portion])
                at += len(portion)
        checksums += chunk_checksums(left, seed)
        end = at + len(left)
        assert end - start == record.body_size
        padding = bytes(aligned(end) - end)
        await self._pace.write(self.file.handle, at, [left, padding])
        record.chunk_checksums = tuple(checksums)
        await self._pace.write(self.file.handle, record.offset, [encode_header(record)])
        self._start = aligned(end)
        return self._start - record.offset

    async def _write_buffers(self) -> None:
        buffers, self._buffers = self._buffers, []
        if buffers:
            start, self._start = self._start, self.file.end
            await self._pace.write(self.file.handle, start, buffers)

    async def finish(self) -> FinishedFile:
        """Write the index, cut the file after the index, and sync everything."""
        file = self.file
        await self._write_buffers()
        encoding = file.index.encoding(file.identity)
        body, live_bytes = await run_in_slices(encoding, self._shared.give_way)
        record = JournalRecord(JournalRecordKind.FINISH, body=body)
        record.identity, record.offset = file.identity, file.end
        record.sequence = record.origin_sequence = self._next_sequence
        buffers: list[Buffer] = []
        append_encoded(record, buffers)
        await self._pace.write(file.handle, file.end, buffers)
        entry = replace(
            file.entry,
            state=FileState.FINISHED,
            data_end=file.end,
            finish_offset=file.end,
            live_bytes=live_bytes,
        )
        head = decode_index_head(body, file.identity)
        done = FinishedFile(entry, file.handle, file.identity, head, record.header_size)
        await file.handle.truncate(done.end)
        await self._pace.sync(file.handle)
        await write_header(file.handle, entry)
        file.handle.may_close()
        return done
