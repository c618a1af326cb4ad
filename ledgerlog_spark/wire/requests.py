"""Encodes and decodes v2 requests (WIRE.md#requests).

    frame       = length i32 (of the body) | body
    body        = packet header i32 | fields
    ADD         = master key [20] | stored entry
    READ        = ledger id i64 | entry id i64 [| master key [20] with FENCE]
    BATCH_READ  = ledger id i64 | first entry id i64 | request id i64 | count i32 | size i64
                  [| master key [20] with FENCE]
    AUTH        = an AuthMessage of protobuf
    ADD_RUN     = ledger id i64 | first entry id i64 | request id i64 | master key [20]
                  | count i32 | stride i32 [| ids i64 * count with stride 0]
                  | lengths i32 * count | stored entries
    TELL_LAC    = ledger id i64 | last add confirmed i64 | master key [20]
    READ_SLICES = see `slice_requests`

Each `encode_*` function returns a whole frame, or the part of a frame before its stored entries.
The caller sends the stored entries after this part, unchanged. `decode_request` takes the body of
one frame from `frames.FrameSplitter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import Struct, error, pack, unpack_from
from typing import NamedTuple

from ledgerlog_spark.errors import LocalProtocolError, WireFormatError
from ledgerlog_spark.model import (
    ENTRY_HEADER_SIZE_BYTES,
    MASTER_KEY_SIZE_BYTES,
    NO_ENTRY,
    RUN_ENTRIES_MAX,
    Code,
)
from ledgerlog_spark.wire.digests import Buffer
from ledgerlog_spark.wire.opcodes import VERSION, VERSION_MIN, Flag, Opcode, packet_header
from ledgerlog_spark.wire.slice_requests import SliceReadRequest, decode_read_slices

_HEADER = Struct(">i")
_IDS = Struct(">qq")
_ADD_HEAD = Struct(">iI20s")
_ADD_BODY = Struct(">I20sqq")
_READ = Struct(">iIqq")
_FENCING_READ = Struct(">iIqq20s")
_BATCH_READ = Struct(">iIqqqiq")
_BATCH_FIELDS = Struct(">qqqiq")
_RUN_HEAD = Struct(">iIqqq20sii")
_RUN_FIELDS = Struct(">qqq20sii")
_TELL_LAC = Struct(">iIqq20s")
_TELL_LAC_FIELDS = Struct(">qq20s")

_I64 = Struct(">q")
_RUN_REQUEST_ID_OFFSET = 4 + 4 + 8 + 8

_IDS_OFFSET = 4
_ADD_SIZE_BYTES_MIN = 4 + MASTER_KEY_SIZE_BYTES + ENTRY_HEADER_SIZE_BYTES


class AddRequest(NamedTuple):
    """A request to store one entry. The ids are from the header of the entry."""

    version: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    entry: memoryview


class AddRunRequest(NamedTuple):
    """A request to store a run of entries. The bookie stores all of them or none."""

    version: int
    flags: int
    ledger_id: int
    request_id: int
    entry_ids: range | tuple[int, ...]  # ascending; a `range` if the ids are evenly spaced
    lengths: tuple[int, ...]  # bytes of each stored entry, at least 32; they add up to `body`
    master_key: bytes
    body: memoryview


class ReadRequest(NamedTuple):
    """A request to read one entry. The entry id NO_ENTRY means the last entry."""

    version: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes | None


class BatchReadRequest(NamedTuple):
    """A request to read consecutive entries. If `count_max` is 0 or less, there is no limit."""

    version: int
    flags: int
    ledger_id: int
    first_entry_id: int
    request_id: int
    count_max: int
    size_bytes_max: int
    master_key: bytes | None


class TellLacRequest(NamedTuple):
    """An announcement of the LAC of the ledger's writer.

    Only a refused announcement gets an answer.
    """

    version: int
    flags: int
    ledger_id: int
    last_add_confirmed: int
    master_key: bytes


class AuthMessage(NamedTuple):
    """An AUTH request or answer. `message` is a protobuf AuthMessage, which is not decoded."""

    version: int
    flags: int
    message: bytes


class RefusedRequest(NamedTuple):
    """A request that must not be executed. The answer has the code `code`.

    `opcode` is the received number, which may be unknown. `request_id` is None if answers to this
    operation contain no request id.
    """

    version: int
    opcode: int
    ledger_id: int
    entry_id: int
    request_id: int | None
    code: Code


Request = (
    AddRequest
    | AddRunRequest
    | ReadRequest
    | BatchReadRequest
    | TellLacRequest
    | SliceReadRequest
    | AuthMessage
    | RefusedRequest
)


def encode_add_head(master_key: bytes, entry_size_bytes: int, flags: int = 0) -> bytes:
    """Return the first 28 bytes of an ADD frame. A stored entry of `entry_size_bytes` follows."""
    return _ADD_HEAD.pack(
        24 + entry_size_bytes, packet_header(Opcode.ADD, flags), checked_key(master_key)
    )


def encode_add_run_head(
    *,
    ledger_id: int,
    request_id: int,
    entry_ids: Sequence[int],  # ascending; a `range` if the ids are evenly spaced
    lengths: Sequence[int],  # bytes of each stored entry
    master_key: bytes,
    flags: int = 0,  # RECOVERY_ADD and HIGH_PRIORITY in recovery
) -> bytes:
    """Return the part of an ADD_RUN frame that precedes its stored entries."""
    check_run(ledger_id, entry_ids, lengths)
    count = len(entry_ids)
    if isinstance(entry_ids, range) and 1 <= entry_ids.step < 1 << 31:
        stride, ids = entry_ids.step, b""
    elif count == 1:
        stride, ids = 1, b""
    else:
        stride, ids = 0, pack(f">{count}q", *entry_ids)
    body_size_bytes = _RUN_HEAD.size - 4 + len(ids) + 4 * count + sum(lengths)
    head = _RUN_HEAD.pack(
        body_size_bytes,
        packet_header(Opcode.ADD_RUN, flags),
        ledger_id,
        entry_ids[0],
        request_id,
        checked_key(master_key),
        count,
        stride,
    )
    return head + ids + pack(f">{count}i", *lengths)


def check_run(ledger_id: int, entry_ids: Sequence[int], lengths: Sequence[int]) -> None:
    """Raise LocalProtocolError if a run cannot have entries with these ids and lengths."""
    if not 1 <= len(entry_ids) <= RUN_ENTRIES_MAX or len(lengths) != len(entry_ids):
        raise LocalProtocolError(
            f"a run has {len(entry_ids)} ids and {len(lengths)} lengths, but needs 1 to "
            f"{RUN_ENTRIES_MAX} ids and one length for each",
            ledger_id=ledger_id,
        )
    check_ids(ledger_id, entry_ids[0])


def with_request_id(add_run_head: bytes, request_id: int) -> bytes:
    """Return a copy of the head that `encode_add_run_head` returned, with another request id."""
    end = _RUN_REQUEST_ID_OFFSET + _I64.size
    return b"".join(
        (add_run_head[:_RUN_REQUEST_ID_OFFSET], _I64.pack(request_id), add_run_head[end:])
    )


def add_run_size_bytes(count: int, entries_size_bytes: int, *, is_listed: bool = False) -> int:
    """Return the size of a whole ADD_RUN frame in bytes.

    `is_listed` must be true if the ids are not evenly spaced, because the frame then lists each id.
    """
    return _RUN_HEAD.size + (12 if is_listed else 4) * count + entries_size_bytes


def encode_read(
    ledger_id: int, entry_id: int, *, fence_key: bytes | None = None, flags: int = 0
) -> bytes:
    """Return a READ frame. With `fence_key`, the request also fences the ledger."""
    check_ids(ledger_id, entry_id, entry_id_min=NO_ENTRY)
    if fence_key is None:
        return _READ.pack(20, packet_header(Opcode.READ, flags), ledger_id, entry_id)
    header = packet_header(Opcode.READ, flags | Flag.FENCE)
    return _FENCING_READ.pack(40, header, ledger_id, entry_id, checked_key(fence_key))


def encode_batch_read(
    ledger_id: int,
    first_entry_id: int,
    *,
    request_id: int,
    count_max: int,
    size_bytes_max: int,
    fence_key: bytes | None = None,
    flags: int = 0,
) -> bytes:
    """Return a BATCH_READ frame."""
    check_ids(ledger_id, first_entry_id)
    key = b"" if fence_key is None else checked_key(fence_key)
    if key:
        flags |= Flag.FENCE
    head = _BATCH_READ.pack(
        40 + len(key),
        packet_header(Opcode.BATCH_READ, flags),
        ledger_id,
        first_entry_id,
        request_id,
        count_max,
        size_bytes_max,
    )
    return head + key


def encode_tell_lac(ledger_id: int, last_add_confirmed: int, master_key: bytes) -> bytes:
    """Return a TELL_LAC frame."""
    check_ids(ledger_id, last_add_confirmed)
    header = packet_header(Opcode.TELL_LAC)
    key = checked_key(master_key)
    return _TELL_LAC.pack(40, header, ledger_id, last_add_confirmed, key)


def encode_auth(message: bytes, version: int = VERSION) -> bytes:
    """Return an AUTH frame. A bookie's answer has the same layout."""
    return Struct(">iI").pack(4 + len(message), packet_header(Opcode.AUTH, 0, version)) + message


def check_ids(ledger_id: int, entry_id: int = 0, *, entry_id_min: int = 0) -> None:
    """Raise LocalProtocolError if a request cannot contain these ids (or the LAC `entry_id`)."""
    if ledger_id < 0 or entry_id < entry_id_min:
        raise LocalProtocolError(
            f"ledger {ledger_id}, entry {entry_id}: ids start at 0",
            ledger_id=ledger_id,
            entry_id=entry_id,
        )


def checked_key(master_key: bytes) -> bytes:
    """Return `master_key`; raise LocalProtocolError if it does not have 20 bytes."""
    if len(master_key) != MASTER_KEY_SIZE_BYTES:
        raise LocalProtocolError(
            f"a master key has {len(master_key)} bytes, but needs {MASTER_KEY_SIZE_BYTES}"
        )
    return master_key


def decode_request(body: Buffer) -> Request:
    """Decode the request in the body of a frame.

    If a request has an unknown operation, a negative id, an inconsistent run or a later version,
    and its ids can be read, this function returns a `RefusedRequest`, so that the client gets an
    answer. For any other invalid request it raises WireFormatError.
    """
    view = memoryview(body)
    if len(view) < _HEADER.size:
        raise WireFormatError(
            f"a frame of {len(view)} bytes is shorter than the 4 bytes of a packet header"
        )
    (header,) = _HEADER.unpack_from(view)
    version, opcode, flags = header >> 24 & 0xFF, header >> 16 & 0xFF, header & 0xFFFF
    if version < VERSION_MIN:
        raise WireFormatError(f"protocol version {version} is not supported", version=version)
    decoder = _DECODERS.get(opcode)
    try:
        if version > VERSION:
            return _refused(view, version, opcode, Code.BAD_VERSION)
        if decoder is None:
            return _refused(view, version, opcode, Code.BAD_REQUEST)
        return decoder(view, version, flags)
    except error as cause:
        raise WireFormatError(
            f"a frame of opcode {opcode} ends before its fields do ({len(view)} bytes)",
            opcode=opcode,
            size_bytes=len(view),
        ) from cause


def _refused(
    view: memoryview, version: int, opcode: int, code: Code = Code.BAD_REQUEST
) -> RefusedRequest:
    offset = _IDS_OFFSET + (MASTER_KEY_SIZE_BYTES if opcode == Opcode.ADD else 0)
    ledger_id, entry_id = _IDS.unpack_from(view, offset)
    request_id: int | None = None
    if opcode in (Opcode.BATCH_READ, Opcode.ADD_RUN, Opcode.READ_SLICES):
        (request_id,) = unpack_from(">q", view, _IDS_OFFSET + _IDS.size)
    return RefusedRequest(version, opcode, ledger_id, entry_id, request_id, code)


def check_size(view: memoryview, size_bytes: int, opcode: Opcode) -> None:
    """Raise WireFormatError if a request or answer is not exactly `size_bytes` long."""
    if len(view) != size_bytes:
        raise WireFormatError(
            f"a frame of {opcode.name} has {len(view)} bytes, but needs {size_bytes}",
            opcode=int(opcode),
            size_bytes=len(view),
        )


def _decode_add(view: memoryview, version: int, flags: int) -> AddRequest | RefusedRequest:
    if len(view) < _ADD_SIZE_BYTES_MIN:
        raise WireFormatError(
            f"a frame of ADD has {len(view)} bytes, but needs at least {_ADD_SIZE_BYTES_MIN}",
            opcode=int(Opcode.ADD),
            size_bytes=len(view),
        )
    _, key, ledger_id, entry_id = _ADD_BODY.unpack_from(view)
    if ledger_id < 0 or entry_id < 0:
        return _refused(view, version, Opcode.ADD)
    return AddRequest(version, flags, ledger_id, entry_id, key, view[24:])


def _decode_read(view: memoryview, version: int, flags: int) -> ReadRequest | RefusedRequest:
    is_fencing = bool(flags & Flag.FENCE)
    check_size(view, 40 if is_fencing else 20, Opcode.READ)
    ledger_id, entry_id = _IDS.unpack_from(view, _IDS_OFFSET)
    if ledger_id < 0 or entry_id < NO_ENTRY:
        return _refused(view, version, Opcode.READ)
    key = bytes(view[20:]) if is_fencing else None
    return ReadRequest(version, flags, ledger_id, entry_id, key)


def _decode_batch_read(
    view: memoryview, version: int, flags: int
) -> BatchReadRequest | RefusedRequest:
    is_fencing = bool(flags & Flag.FENCE)
    check_size(view, 60 if is_fencing else 40, Opcode.BATCH_READ)
    ledger_id, entry_id, request_id, count, size = _BATCH_FIELDS.unpack_from(view, _IDS_OFFSET)
    if ledger_id < 0 or entry_id < 0:
        return _refused(view, version, Opcode.BATCH_READ)
    key = bytes(view[40:]) if is_fencing else None
    return BatchReadRequest(version, flags, ledger_id, entry_id, request_id, count, size, key)


def _decode_tell_lac(view: memoryview, version: int, flags: int) -> TellLacRequest | RefusedRequest:
    check_size(view, 40, Opcode.TELL_LAC)
    ledger_id, lac, key = _TELL_LAC_FIELDS.unpack_from(view, _IDS_OFFSET)
    if ledger_id < 0 or lac < 0:
        return _refused(view, version, Opcode.TELL_LAC)
    return TellLacRequest(version, flags, ledger_id, lac, key)


def _decode_read_slices(
    view: memoryview, version: int, flags: int
) -> SliceReadRequest | RefusedRequest:
    request = None if flags & Flag.FENCE else decode_read_slices(view, version, flags)
    return request or _refused(view, version, Opcode.READ_SLICES)


def _decode_auth(view: memoryview, version: int, flags: int) -> AuthMessage:
    return AuthMessage(version, flags, bytes(view[4:]))


def _decode_add_run(view: memoryview, version: int, flags: int) -> AddRunRequest | RefusedRequest:
    ledger_id, first_id, request_id, key, count, stride = _RUN_FIELDS.unpack_from(view, 4)
    if not 1 <= count <= RUN_ENTRIES_MAX or stride < 0 or ledger_id < 0 or first_id < 0:
        return _refused(view, version, Opcode.ADD_RUN)
    offset = 4 + _RUN_FIELDS.size
    lengths_offset = offset + (8 * count if stride == 0 else 0)
    body_offset = lengths_offset + 4 * count
    if body_offset > len(view):
        return _refused(view, version, Opcode.ADD_RUN)
    entry_ids: range | tuple[int, ...]
    if stride == 0:
        entry_ids = unpack_from(f">{count}q", view, offset)
    else:
        entry_ids = range(first_id, first_id + count * stride, stride)
    lengths = unpack_from(f">{count}i", view, lengths_offset)
    body = view[body_offset:]
    if not _is_run(ledger_id, first_id, entry_ids, lengths, body):
        return _refused(view, version, Opcode.ADD_RUN)
    return AddRunRequest(version, flags, ledger_id, request_id, entry_ids, lengths, key, body)


def _is_run(
    ledger_id: int,
    first_id: int,
    entry_ids: range | tuple[int, ...],
    lengths: tuple[int, ...],
    body: memoryview,
) -> bool:
    """Whether the ids and lengths match the body, and the headers of its first and last entry."""
    if min(lengths) < ENTRY_HEADER_SIZE_BYTES or sum(lengths) != len(body):
        return False
    if isinstance(entry_ids, tuple) and (
        entry_ids[0] != first_id or any(one >= after for one, after in pairwise(entry_ids))
    ):
        return False
    last = _IDS.unpack_from(body, len(body) - lengths[-1])
    # If the computed last id has more than 64 bits, it differs from every id in a header.
    return _IDS.unpack_from(body) == (ledger_id, first_id) and last == (ledger_id, entry_ids[-1])


_DECODERS: dict[int, Callable[[memoryview, int, int], Request]] = {
    Opcode.ADD: _decode_add,
    Opcode.READ: _decode_read,
    Opcode.BATCH_READ: _decode_batch_read,
    Opcode.AUTH: _decode_auth,
    Opcode.ADD_RUN: _decode_add_run,
    Opcode.TELL_LAC: _decode_tell_lac,
    Opcode.READ_SLICES: _decode_read_slices,
}
