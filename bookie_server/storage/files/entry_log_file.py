"""Entry-log files in memory: files that are not finished, and finished files with their index.

Reads of damaged bytes raise CorruptRecordError.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from bookie_server.core.index_format import (
    BLOCK_SIZE,
    HEAD_SIZE,
    IndexBlock,
    IndexHead,
    LedgerTotal,
    decode_index_head,
    index_head_size,
)
from bookie_server.core.manifest_codec import FileEntry
from bookie_server.core.pieces import Piece
from bookie_server.core.record import FileIdentity, JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import (
    CHUNK_SIZE,
    FIXED_SIZE,
    check_chunks,
    damage_at,
    decode_header,
    header_size_at,
)
from bookie_server.core.requests import ID_MAX
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.live_bytes import LiveBytes
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.spans import Spans

HEADER_READ_SIZE = 4_096


@dataclass(slots=True)
class Need:
    """Bytes that a reading needs before it can continue."""

    handle: PooledFile
    offset: int
    size: int


@dataclass(slots=True)
class OpenFile:
    """A file that the journal writes, or will write next."""

    entry: FileEntry
    handle: PooledFile
    identity: FileIdentity
    end: int = RECORDS_START  # offset of the next record
    first_sequence: int = 0  # sequence of the first record; 0 while the file has no record
    finish_sequence: int = 0  # sequence of the finish record; 0 until the file is full
    is_recycled: bool = False  # the slot held another file, so bytes after `end` may not be zeros
    index: ActiveIndex = field(default_factory=ActiveIndex)


@dataclass(slots=True, eq=False)
class FinishedFile:
    """A file with a finish record, which contains the file's index."""

    entry: FileEntry
    handle: PooledFile
    identity: FileIdentity
    head: IndexHead | None = None  # None if the index is damaged
    header_size: int = 0  # size of the finish record's header; the index follows the header
    rebuilt: ActiveIndex | None = None  # pieces in memory that replace a damaged index
    live: LiveBytes = field(default_factory=LiveBytes)  # ledgers that are not dropped
    live_bytes: int = 0  # sum of the bytes in `live`
    data_bytes: int = 0  # size of all entries of the file, live or not
    blocks: dict[int, IndexBlock] = field(default_factory=dict)

    @property
    def body_offset(self) -> int:
        """Offset of the index in the file."""
        return self.entry.finish_offset + self.header_size

    @property
    def end(self) -> int:
        """Offset of the first byte after the index, which is the end of the stored data."""
        assert self.head is not None
        return self.body_offset + self.head.block_offset(len(self.head.keys))

    def block_offset(self, number: int) -> int:
        """Return the offset of an index block in the file."""
        assert self.head is not None
        return self.body_offset + self.head.block_offset(number)

    def totals(self) -> Sequence[LedgerTotal]:
        """Return the total of each ledger in the file.

        A total has 0 pieces if all records of the ledger are dropped. The result is empty while the
        head of the index is damaged and the index is not yet rebuilt.
        """
        if self.rebuilt is not None:
            return self.rebuilt.totals()
        return () if self.head is None else self.head.totals

    def has(self, ledger_id: int) -> bool:
        """Return whether the file contains records of a ledger, live or dropped."""
        if self.rebuilt is not None:
            return ledger_id in self.rebuilt
        return self.total_of(ledger_id) is not None

    def total_of(self, ledger_id: int) -> LedgerTotal | None:
        """Return the total of a ledger from the index in the file, not from a rebuilt index."""
        return None if self.head is None else self.head.totals.of(ledger_id)


def read_header(
    handle: PooledFile, identity: FileIdentity, offset: int
) -> Generator[Need, bytes, JournalRecord]:
    """Return the record at `offset`, without its body."""
    data = yield Need(handle, offset, HEADER_READ_SIZE)
    size = header_size_at(data, identity, offset)
    if size > len(data):
        data = yield Need(handle, offset, size)
    return decode_header(data, identity, offset)


def read_body(
    handle: PooledFile, record: JournalRecord, start: int, end: int
) -> Generator[Need, bytes, bytes]:
    """Verify and return the bytes `start` to `end` (exclusive) of a record's body."""
    if start == end:
        return b""
    first_chunk = start // CHUNK_SIZE
    from_byte = first_chunk * CHUNK_SIZE
    to_byte = min(record.body_size, -(-end // CHUNK_SIZE) * CHUNK_SIZE)
    data = yield Need(handle, record.offset + record.header_size + from_byte, to_byte - from_byte)
    if len(data) != to_byte - from_byte:
        assert record.identity is not None
        raise damage_at(record.identity, record.offset, "the file ends within the record")
    check_chunks(record, first_chunk, data)
    if start == from_byte and end == to_byte:
        return data
    return data[start - from_byte : end - from_byte]


def read_index_head(file: FinishedFile) -> Generator[Need, bytes, None]:
    """Read and verify the head of a finished file's index."""
    offset = file.entry.finish_offset
    record = yield from read_header(file.handle, file.identity, offset)
    if record.kind is not JournalRecordKind.FINISH:
        raise damage_at(file.identity, offset, "a finish record was expected")
    file.header_size = record.header_size
    data = yield Need(file.handle, file.body_offset, HEAD_SIZE)
    size = index_head_size(data, file.identity)
    data = yield Need(file.handle, file.body_offset, size)
    file.head = decode_index_head(data, file.identity)


def read_block(file: FinishedFile, number: int) -> Generator[Need, bytes, IndexBlock]:
    """Return one verified block of a finished file's index."""
    block = file.blocks.get(number)
    if block is None:
        data = yield Need(file.handle, file.block_offset(number), BLOCK_SIZE)
        block = IndexBlock(data, number, file.identity)
        file.blocks[number] = block
    return block


def find_piece(
    file: FinishedFile, ledger_id: int, entry_id: int
) -> Generator[Need, bytes, Piece[int] | None]:
    """Return the piece of a finished file that holds an entry, or None.

    The target of the piece is the offset of the entry's record.
    """
    if file.rebuilt is not None:
        piece = file.rebuilt.find(ledger_id, entry_id)
        return None if piece is None else by_offset(piece)
    total = file.total_of(ledger_id)
    if total is None or not total.first_entry_id <= entry_id <= total.last_entry_id:
        return None
    assert file.head is not None
    number = file.head.block_of(ledger_id, entry_id)
    if number is None:
        return None
    block = yield from read_block(file, number)
    return block.find(ledger_id, entry_id)


def first_newer(
    file: FinishedFile, ledger_id: int, ids: range, origin: int
) -> Generator[Need, bytes, int]:
    """Return the first of the consecutive `ids` for which a file has a copy newer than `origin`.

    If there is no such copy, return the end of `ids`.
    """
    if not ids:
        return ids.stop
    if file.rebuilt is not None:
        return file.rebuilt.first_newer(ledger_id, ids, origin)
    for number in blocks_of(file, ledger_id, ids.start, ids[-1]):
        block = yield from read_block(file, number)
        for piece in block.pieces_of(ledger_id):
            if piece.last >= ids.start and piece.origin > origin:
                return min(max(piece.first, ids.start), ids.stop)
    return ids.stop


def all_pieces(file: FinishedFile, ledger_id: int) -> Generator[Need, bytes, list[Piece[int]]]:
    """Return all pieces of a ledger in a finished file."""
    if file.rebuilt is not None:
        return [by_offset(piece) for piece in file.rebuilt.pieces_of(ledger_id)]
    found: list[Piece[int]] = []
    for number in blocks_of(file, ledger_id):
        block = yield from read_block(file, number)
        found.extend(block.pieces_of(ledger_id))
    return found


def held_spans(file: FinishedFile, ledger_id: int, tombstone: int) -> Generator[Need, bytes, Spans]:
    """Return the ids of a ledger's live entries in a finished file.

    The index blocks are not cached, because the ledger may have many blocks.
    """
    spans = Spans()
    for number in blocks_of(file, ledger_id):
        data = yield Need(file.handle, file.block_offset(number), BLOCK_SIZE)
        block = IndexBlock(data, number, file.identity)
        spans.extend((p.first, p.last) for p in block.pieces_of(ledger_id) if p.origin > tombstone)
    return spans


def blocks_of(file: FinishedFile, ledger_id: int, first: int = -1, last: int = ID_MAX) -> range:
    """Return the numbers of the index blocks that may contain pieces of a ledger.

    Only pieces with ids from `first` to `last` (inclusive) count.
    """
    if file.head is None or file.total_of(ledger_id) is None:
        return range(0)
    keys = file.head.keys
    end = bisect_left(keys, (ledger_id, last))
    return range(bisect_left(keys, (ledger_id, first)), min(end + 1, len(keys)))


def by_offset(piece: Piece[JournalRecord]) -> Piece[int]:
    """Return the same piece with the offset of the record as its target."""
    target = piece.target
    return Piece(piece.first, piece.last, piece.origin, target.offset, piece.place)


assert FIXED_SIZE <= HEADER_READ_SIZE
