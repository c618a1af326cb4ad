"""Encodes and decodes READ_SLICES requests (WIRE.md#read_slices).

    READ_SLICES = ledger id i64 | first entry id i64 | request id i64 | count i32 | size i64
                  | { entry id i64 | ranges i32 | { offset i32 | length i32 } * ranges } * count

The fields up to the size are the same as in BATCH_READ.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, pack, unpack_from
from typing import NamedTuple

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import SLICE_RANGES_MAX, SLICED_ENTRIES_MAX
from ledgerlog_spark.wire.opcodes import Opcode, packet_header

ByteRange = tuple[int, int]
"""Offset and length of consecutive bytes of a stored entry."""
EntryRanges = tuple[int, Sequence[ByteRange]]
"""An entry id, and ranges of bytes of this entry, in ascending order and without overlaps."""

_HEAD = Struct(">iIqqqiq")
_FIELDS = Struct(">qqqiq")
_ENTRY = Struct(">qi")
_RANGE_SIZE_BYTES = 8
_FIELDS_PLACE = 4
FRAME_SIZE_BYTES_MAX = (
    _FIELDS_PLACE
    + _FIELDS.size
    + SLICED_ENTRIES_MAX * _ENTRY.size
    + SLICE_RANGES_MAX * _RANGE_SIZE_BYTES
)
"""Size of the largest request, without the length of its frame."""
_I32_MAX = (1 << 31) - 1


class SliceReadRequest(NamedTuple):
    """A request for ranges of bytes of stored entries. It never fences the ledger."""

    version: int
    flags: int
    ledger_id: int
    request_id: int
    size_bytes_max: int  # maximum size of the answer; 0 or less means no limit
    entries: tuple[EntryRanges, ...]  # at least one entry; the ids are ascending


def encode_read_slices(
    ledger_id: int,
    entries: Sequence[EntryRanges],
    *,
    request_id: int,
    size_bytes_max: int,
    flags: int = 0,
) -> bytes:
    """Return a READ_SLICES frame."""
    if ledger_id < 0 or not _are_valid(entries):
        raise LocalProtocolError(
            f"no request can read these slices of {len(entries)} entries of ledger {ledger_id}",
            ledger_id=ledger_id,
        )
    pieces: list[bytes] = []
    for entry_id, ranges in entries:
        pieces.append(_ENTRY.pack(entry_id, len(ranges)))
        numbers = [number for one in ranges for number in one]
        pieces.append(pack(f">{len(numbers)}i", *numbers))
    body = b"".join(pieces)
    head = _HEAD.pack(
        _FIELDS_PLACE + _FIELDS.size + len(body),
        packet_header(Opcode.READ_SLICES, flags),
        ledger_id,
        entries[0][0],
        request_id,
        len(entries),
        size_bytes_max,
    )
    return head + body


def decode_read_slices(view: memoryview, version: int, flags: int) -> SliceReadRequest | None:
    """Decode the request in the body of a frame; return None if the request must be refused.

    Raises struct.error if the frame ends before its list of entries begins.
    """
    ledger_id, first_entry_id, request_id, count, size = _FIELDS.unpack_from(view, _FIELDS_PLACE)
    if ledger_id < 0 or not 1 <= count <= SLICED_ENTRIES_MAX or len(view) > FRAME_SIZE_BYTES_MAX:
        return None
    try:
        entries = _decoded(view[_FIELDS_PLACE + _FIELDS.size :], count)
    except error:
        return None  # the frame ends before its list does
    if not _are_valid(entries) or entries[0][0] != first_entry_id:
        return None
    return SliceReadRequest(version, flags, ledger_id, request_id, size, tuple(entries))


def _decoded(view: memoryview, count: int) -> list[EntryRanges]:
    """Decode a list of `count` entries. Return an empty list if its size or a count is wrong.

    Raises struct.error if the frame ends before its list does.
    """
    entries: list[EntryRanges] = []
    at, ranges_left = 0, SLICE_RANGES_MAX
    for _ in range(count):
        entry_id, ranges_count = _ENTRY.unpack_from(view, at)
        at += _ENTRY.size
        ranges_left -= ranges_count
        if ranges_count < 1 or ranges_left < 0:
            return []
        numbers = unpack_from(f">{2 * ranges_count}i", view, at)
        at += ranges_count * _RANGE_SIZE_BYTES
        entries.append((entry_id, tuple(zip(numbers[::2], numbers[1::2], strict=True))))
    return entries if at == len(view) else []


def _are_valid(entries: Sequence[EntryRanges]) -> bool:
    """Whether ids and ranges ascend, so that no slices are together larger than their entry."""
    if not 1 <= len(entries) <= SLICED_ENTRIES_MAX:
        return False
    if sum(len(ranges) for _, ranges in entries) > SLICE_RANGES_MAX:
        return False
    last_id = -1
    for entry_id, ranges in entries:
        if entry_id <= last_id or not ranges:
            return False
        last_id, end = entry_id, 0
        for offset, length in ranges:
            if offset < end or length < 1:
                return False
            end = offset + length
        if end > _I32_MAX:
            return False
    return True
