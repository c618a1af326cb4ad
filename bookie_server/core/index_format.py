"""The sorted index in the body of a file's finish record (FORMATS.md#index).

    head, 32 bytes      magic "LIDX", format version u16, zero u16, blocks u32, ledgers u32,
                        pieces u64, CRC32C u32 of the directory and the totals, CRC32C u32 of the
                        head before this field
    directory           per block, from its last piece: ledger id i64, last entry id i64
    totals              per ledger: id i64, first entry id i64, last entry id i64, bytes u64,
                        newest origin sequence u64, pieces u32
    blocks              16 KiB each: CRC32C u32 of the rest, pieces u32, zero u64, then per piece
                        ledger id i64, last entry id i64, first entry id i64, origin sequence u64,
                        record offset / 512 u32, place in the record u32

Pieces are sorted by ledger id and last entry id, and do not overlap. All numbers are big-endian.
The identity of the file seeds all checksums. The number of a block also seeds the checksum of the
block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, overload

from bookie_server.core.pieces import Piece
from bookie_server.core.record import FileIdentity
from bookie_server.core.requests import Buffer
from bookie_server.errors import CorruptRecordError
from ledgerlog_spark.wire.digests import crc32c

MAGIC = b"LIDX"
FORMAT_VERSION = 1
BLOCK_SIZE = 16_384
UNIT = 512

_head = Struct(">4sHHIIQI")
_checksum = Struct(">I")
_id = Struct(">q")
_key = Struct(">qq")
_total = Struct(">qqqQQI")
_block_head = Struct(">IIQ")
_piece = Struct(">qqqQII")
_block_number = Struct(">I")

HEAD_SIZE = _head.size + _checksum.size
PIECES_PER_BLOCK = (BLOCK_SIZE - _block_head.size) // _piece.size


class LedgerTotal(NamedTuple):
    """The entries of one ledger in one file."""

    ledger_id: int
    first_entry_id: int  # inclusive
    last_entry_id: int  # inclusive
    size_bytes: int  # size of the ledger's stored entries that the index refers to
    origin_newest: int  # largest origin sequence of the ledger's pieces
    pieces: int


_new_total = partial(tuple.__new__, LedgerTotal)


class Totals(Sequence[LedgerTotal]):
    """The totals of an index, sorted by ledger id.

    A total is decoded only on access, because there may be 100,000 totals.
    """

    __slots__ = ("_data", "_found")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found: LedgerTotal | None = None

    def __len__(self) -> int:
        return len(self._data) // _total.size

    @overload
    def __getitem__(self, number: int) -> LedgerTotal: ...

    @overload
    def __getitem__(self, number: slice) -> list[LedgerTotal]: ...

    def __getitem__(self, number: int | slice) -> LedgerTotal | list[LedgerTotal]:
        """Return one total, or the totals of a slice."""
        if isinstance(number, slice):
            start, end, step = number.indices(len(self))
            assert step == 1
            part = memoryview(self._data)[start * _total.size : max(start, end) * _total.size]
            return list(map(_new_total, _total.iter_unpack(part)))
        if not 0 <= number < len(self):
            raise IndexError(number)
        return LedgerTotal(*_total.unpack_from(self._data, number * _total.size))

    def __iter__(self) -> Iterator[LedgerTotal]:
        return map(_new_total, _total.iter_unpack(self._data))

    def of(self, ledger_id: int) -> LedgerTotal | None:
        """Return the total of a ledger, or None."""
        found = self._found
        if found is not None and found.ledger_id == ledger_id:
            return found
        number = bisect_left(range(len(self)), ledger_id, key=self._id_at)
        if number == len(self) or self._id_at(number) != ledger_id:
            return None
        # Keep the total, because the next read is often a read of the same ledger.
        self._found = found = self[number]
        return found

    def _id_at(self, number: int) -> int:
        ledger_id: int = _id.unpack_from(self._data, number * _total.size)[0]
        return ledger_id


@dataclass(frozen=True, slots=True)
class IndexHead:
    """The parts of an index before its blocks: directory and totals."""

    keys: tuple[tuple[int, int], ...]  # (ledger id, last entry id) of the last piece of each block
    totals: Totals
    pieces: int
    blocks_start: int  # offset of the first block in the body

    def block_of(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the number of the only block that can hold an entry's piece, or None."""
        number = bisect_left(self.keys, (ledger_id, entry_id))
        return number if number < len(self.keys) else None

    def block_offset(self, number: int) -> int:
        """Return the offset of a block in the body."""
        return self.blocks_start + number * BLOCK_SIZE


class IndexEncoder:
    """Encodes the body of a finish record. `add` does most of the work, so `finish` is fast."""

    def __init__(self, identity: FileIdentity) -> None:
        self._identity = identity
        self._block: list[bytes] = []
        self._blocks: list[bytes] = []
        self._keys: list[bytes] = []
        self._totals: list[bytes] = []
        self._pieces = 0

    def add(self, ledger_id: int, piece: Piece[Any], record_offset: int) -> None:
        """Add the next piece. Pieces must be in ascending order of ledger id and last entry id."""
        first, last, origin, _, place = piece
        self._block.append(
            _piece.pack(ledger_id, last, first, origin, record_offset // UNIT, place)
        )
        self._pieces += 1
        if len(self._block) == PIECES_PER_BLOCK:
            self._end_block()

    def end_ledger(self, total: LedgerTotal) -> None:
        """Add the total of the ledger to which the last added piece belongs."""
        self._totals.append(_total.pack(*total))

    def _end_block(self) -> None:
        head = _block_head.pack(0, len(self._block), 0)[4:]
        rest = b"".join((head, *self._block)).ljust(BLOCK_SIZE - 4, b"\0")
        checksum = crc32c(rest, _block_seed(self._identity, len(self._blocks)))
        self._keys.append(_key.pack(*_key.unpack_from(self._block[-1])))
        self._blocks.append(_checksum.pack(checksum) + rest)
        self._block = []

    def finish(self) -> bytes:
        """Return the whole body."""
        if self._block:
            self._end_block()
        seed = self._identity.seed
        tables = b"".join(self._keys) + b"".join(self._totals)
        head = _head.pack(
            MAGIC,
            FORMAT_VERSION,
            0,
            len(self._blocks),
            len(self._totals),
            self._pieces,
            crc32c(tables, seed),
        )
        return b"".join((head, _checksum.pack(crc32c(head, seed)), tables, *self._blocks))


def index_head_size(data: Buffer, identity: FileIdentity) -> int:
    """Return the size of head, directory and totals. `data` must contain at least the head."""
    _, _, _, blocks, ledgers, _, _ = _checked_head(data, identity)
    return HEAD_SIZE + blocks * _key.size + ledgers * _total.size


def decode_index_head(data: Buffer, identity: FileIdentity) -> IndexHead:
    """Decode the first `index_head_size` bytes of an index: everything before the blocks."""
    _, _, _, blocks, ledgers, pieces, checksum = _checked_head(data, identity)
    size = HEAD_SIZE + blocks * _key.size + ledgers * _total.size
    tables = bytes(data[HEAD_SIZE:size])
    if len(tables) != size - HEAD_SIZE or crc32c(tables, identity.seed) != checksum:
        raise _damage(identity, "the index's tables are damaged")
    split = blocks * _key.size
    keys = tuple(_key.iter_unpack(tables[:split]))
    return IndexHead(keys, Totals(tables[split:]), pieces, size)


class IndexBlock:
    """One verified block of an index. Searches decode only the pieces that they need."""

    __slots__ = ("_count", "_data")

    def __init__(self, data: bytes, number: int, identity: FileIdentity) -> None:
        if len(data) != BLOCK_SIZE:
            raise _damage(identity, f"index block {number} is cut off")
        checksum, count, _ = _block_head.unpack_from(data)
        if checksum != crc32c(memoryview(data)[4:], _block_seed(identity, number)):
            raise _damage(identity, f"index block {number} is damaged")
        self._data = data
        self._count: int = count

    def __len__(self) -> int:
        return self._count

    def _key_at(self, number: int) -> tuple[int, int]:
        key: tuple[int, int] = _key.unpack_from(self._data, _block_head.size + number * _piece.size)
        return key

    def piece_at(self, number: int) -> tuple[int, Piece[int]]:
        """Return the ledger id and the piece with this number. Its target is a record's offset."""
        ledger, last, first, origin, unit, place = _piece.unpack_from(
            self._data, _block_head.size + number * _piece.size
        )
        return ledger, Piece(first, last, origin, unit * UNIT, place)

    def find(self, ledger_id: int, entry_id: int) -> Piece[int] | None:
        """Return the piece that holds an entry, or None."""
        number = bisect_left(range(self._count), (ledger_id, entry_id), key=self._key_at)
        if number == self._count:
            return None
        ledger, piece = self.piece_at(number)
        return piece if ledger == ledger_id and piece.first <= entry_id else None

    def pieces_of(self, ledger_id: int) -> Iterator[Piece[int]]:
        """Return all pieces of a ledger in this block, in ascending order."""
        start = bisect_left(range(self._count), (ledger_id, -1), key=self._key_at)
        for number in range(start, self._count):
            ledger, piece = self.piece_at(number)
            if ledger != ledger_id:
                return
            yield piece


def _checked_head(
    data: Buffer, identity: FileIdentity
) -> tuple[bytes, int, int, int, int, int, int]:
    head = bytes(data[: _head.size])
    if len(data) < HEAD_SIZE or _checksum.unpack_from(data, _head.size)[0] != crc32c(
        head, identity.seed
    ):
        raise _damage(identity, "the index's head is damaged")
    fields: tuple[bytes, int, int, int, int, int, int] = _head.unpack(head)
    if fields[0] != MAGIC or fields[1] != FORMAT_VERSION:
        raise _damage(
            identity,
            f"the index has version {fields[1]}, but this program reads version {FORMAT_VERSION}",
        )
    return fields


def _block_seed(identity: FileIdentity, number: int) -> int:
    return crc32c(_block_number.pack(number), identity.seed)


def _damage(identity: FileIdentity, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"{identity.name}: {reason}", path=identity.name, reason=reason)
