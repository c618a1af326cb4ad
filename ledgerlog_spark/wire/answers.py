"""Encodes and decodes v2 answers (WIRE.md#answers).

    ADD         = packet header i32 | code i32 | ledger id i64 | entry id i64
    READ        = the fields of ADD | stored entry
    BATCH_READ  = the fields of ADD | request id i64 | { length i32 | stored entry } *
    ADD_RUN     = the fields of ADD | request id i64
    READ_SLICES = the fields of BATCH_READ, with the slices of each entry in place of the entry
    TELL_LAC    = the fields of ADD, with the LAC as entry id; sent only for a refused request
    AUTH        = packet header i32 | an AuthMessage of protobuf

The flags of an answer are 0, and its version is the same as in the request. If a READ has the entry
id -1, the answer also has the entry id -1, and the true id is in the stored entry. An answer with
another code than OK contains no entries.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import Struct, error, pack
from typing import NamedTuple

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.digests import Buffer
from ledgerlog_spark.wire.opcodes import (
    VERSION,
    VERSION_MIN,
    Opcode,
    code_of,
    number_of,
    packet_header,
)
from ledgerlog_spark.wire.requests import AuthMessage, RefusedRequest, check_size
from ledgerlog_spark.wire.stored_batch import LENGTH_SIZE_BYTES, StoredBatch

_PLAIN = Struct(">iIiqq")
_NUMBERED = Struct(">iIiqqq")
_FIELDS = Struct(">Iiqq")
_NUMBERED_FIELDS = Struct(">Iiqqq")
_I32 = Struct(">i")

_JOINED_BYTES = 16_384
"""Minimum size of an entry that is sent without copying it into a common buffer."""

_WORD = "I"  # 4 bytes, which are copied unchanged
_ADD_WORDS = _PLAIN.size // 4
_ID_WORD = _ADD_WORDS - 2

_PLAIN_BODY_SIZE_BYTES = _FIELDS.size
_NUMBERED_BODY_SIZE_BYTES = _NUMBERED_FIELDS.size


class AddAnswer(NamedTuple):
    """The outcome of an ADD."""

    code: Code
    ledger_id: int
    entry_id: int


class ReadAnswer(NamedTuple):
    """The answer to a READ: the stored entry, not verified, or None if `code` is not OK."""

    code: Code
    ledger_id: int
    entry_id: int
    entry: bytes | None


class BatchReadAnswer(NamedTuple):
    """Consecutive stored entries, not verified. Entries that the answer omits may still exist."""

    code: Code
    ledger_id: int
    first_entry_id: int
    request_id: int
    entries: Sequence[bytes]  # this object keeps the memory of the decoded body


class SliceReadAnswer(NamedTuple):
    """Slices of the first requested entries, not verified. Omitted entries may still exist."""

    code: Code
    ledger_id: int
    first_entry_id: int
    request_id: int
    slices: Sequence[bytes]  # joined slices of each entry; the object keeps the body's memory


class AddRunAnswer(NamedTuple):
    """The outcome of an ADD_RUN. The request id is None if the bookie does not support ADD_RUN."""

    code: Code
    ledger_id: int
    first_entry_id: int
    request_id: int | None


class TellLacAnswer(NamedTuple):
    """The refusal of a TELL_LAC. A TELL_LAC that is accepted gets no answer."""

    code: Code
    ledger_id: int
    last_add_confirmed: int


Answer = (
    AddAnswer
    | ReadAnswer
    | BatchReadAnswer
    | SliceReadAnswer
    | AddRunAnswer
    | TellLacAnswer
    | AuthMessage
)


def encode_add_answer(
    code: Code, ledger_id: int, entry_id: int, *, version: int = VERSION
) -> bytes:
    """Return the 28 bytes that answer one ADD."""
    header = packet_header(Opcode.ADD, 0, version)
    return _PLAIN.pack(24, header, number_of(code), ledger_id, entry_id)


def encode_add_answers(
    code: Code, ledger_id: int, entry_ids: Sequence[int], *, version: int = VERSION
) -> bytes:
    """Return the joined answers to several ADDs, one for each entry id. All have the same code.

    The answers are copies of one template. Two assignments then write the ids into all copies.
    """
    count = len(entry_ids)
    template = encode_add_answer(code, ledger_id, 0, version=version)
    words, ids = array(_WORD, template * count), array(_WORD, pack(f">{count}q", *entry_ids))
    words[_ID_WORD::_ADD_WORDS] = ids[0::2]
    words[_ID_WORD + 1 :: _ADD_WORDS] = ids[1::2]
    return words.tobytes()


def encode_add_run_answer(
    code: Code, ledger_id: int, first_entry_id: int, request_id: int, *, version: int = VERSION
) -> bytes:
    """Return the 36 bytes that answer one ADD_RUN."""
    header = packet_header(Opcode.ADD_RUN, 0, version)
    return _NUMBERED.pack(32, header, number_of(code), ledger_id, first_entry_id, request_id)


def encode_read_answer_head(
    code: Code, ledger_id: int, entry_id: int, entry_size_bytes: int, *, version: int = VERSION
) -> bytes:
    """Return the first 28 bytes of the answer to a READ, before the stored entry.

    `entry_id` is the same as in the request, even if it is -1. If `entry_size_bytes` is 0, these
    bytes are the whole answer.
    """
    header = packet_header(Opcode.READ, 0, version)
    return _PLAIN.pack(24 + entry_size_bytes, header, number_of(code), ledger_id, entry_id)


def encode_read_answers(
    code: Code,
    ledger_id: int,
    entry_ids: Sequence[int],
    entries: Sequence[Buffer],
    *,
    version: int = VERSION,
) -> list[Buffer]:
    """Return the buffers of the answers to several READs, one for each entry id, with one code.

    If the code is OK, `entries` has one entry for each id, otherwise none. The entries are not
    copied.
    """
    header, number = repeat(packet_header(Opcode.READ, 0, version)), repeat(number_of(code))
    sizes: Iterable[int] = repeat(24)
    if entries:
        sizes = [24 + len(entry) for entry in entries]
    heads = map(_PLAIN.pack, sizes, header, number, repeat(ledger_id), entry_ids)
    if not entries:
        return list(heads)
    buffers: list[Buffer] = [b""] * (2 * len(entries))
    buffers[0::2] = heads
    buffers[1::2] = entries
    return buffers


def encode_batch_read_answer(
    code: Code,
    ledger_id: int,
    first_entry_id: int,
    request_id: int,
    entries: Sequence[Buffer],
    *,
    version: int = VERSION,
    opcode: Opcode = Opcode.BATCH_READ,
) -> list[Buffer]:
    """Return the buffers of a BATCH_READ answer. `entries` is empty unless the code is OK.

    Large entries are not copied. Small entries of the same length are joined into one buffer.
    The answer to a READ_SLICES has the same layout. In that answer, `entries` are the slices of
    each entry.
    """
    lengths = list(map(len, entries))
    size_bytes = _NUMBERED_BODY_SIZE_BYTES + LENGTH_SIZE_BYTES * len(lengths)
    size_bytes += sum(lengths)
    header = packet_header(opcode, 0, version)
    head = _NUMBERED.pack(
        size_bytes, header, number_of(code), ledger_id, first_entry_id, request_id
    )
    if lengths and lengths[0] < _JOINED_BYTES and lengths.count(lengths[0]) == len(lengths):
        # The length field, which is the same for all entries, is the separator of `join`. So the
        # entries are joined without a loop in Python.
        return [_I32.pack(lengths[0]).join((head, *entries))]
    buffers: list[Buffer] = [head] * (2 * len(lengths) + 1)
    buffers[1::2] = map(_I32.pack, lengths)
    buffers[2::2] = entries
    return buffers


def encode_refusal(request: RefusedRequest) -> bytes:
    """Return the answer to a refused request, in the layout of its operation."""
    number = number_of(request.code)
    header = packet_header(request.opcode, 0, request.version)
    ids = request.ledger_id, request.entry_id
    if request.request_id is None:
        return _PLAIN.pack(24, header, number, *ids)
    return _NUMBERED.pack(32, header, number, *ids, request.request_id)


def decode_answer(body: Buffer) -> Answer:
    """Decode the answer in the body of a frame. Its entries or slices may be views of the body."""
    view = memoryview(body)
    if len(view) < _I32.size:
        raise WireFormatError(
            f"an answer of {len(view)} bytes is shorter than the 4 bytes of a packet header"
        )
    version, opcode = view[0], view[1]
    if not VERSION_MIN <= version <= VERSION:
        raise WireFormatError(
            f"an answer has protocol version {version}, which is not supported", version=version
        )
    decoder = _DECODERS.get(opcode)
    if decoder is None:
        raise WireFormatError(f"an answer has opcode {opcode}, which no request has", opcode=opcode)
    try:
        return decoder(view)
    except error as cause:
        raise WireFormatError(
            f"an answer of {len(view)} bytes ends before its fields do", size_bytes=len(view)
        ) from cause


def _decode_auth(view: memoryview) -> AuthMessage:
    return AuthMessage(view[0], view[2] << 8 | view[3], bytes(view[4:]))


def _decode_add(view: memoryview) -> AddAnswer:
    check_size(view, _PLAIN_BODY_SIZE_BYTES, Opcode.ADD)
    _, number, ledger_id, entry_id = _FIELDS.unpack(view)
    return AddAnswer(code_of(number), ledger_id, entry_id)


def _decode_add_run(view: memoryview) -> AddRunAnswer:
    if len(view) == _PLAIN_BODY_SIZE_BYTES:
        _, number, ledger_id, entry_id = _FIELDS.unpack(view)
        return AddRunAnswer(code_of(number), ledger_id, entry_id, None)
    check_size(view, _NUMBERED_BODY_SIZE_BYTES, Opcode.ADD_RUN)
    _, number, ledger_id, entry_id, request_id = _NUMBERED_FIELDS.unpack(view)
    return AddRunAnswer(code_of(number), ledger_id, entry_id, request_id)


def _decode_tell_lac(view: memoryview) -> TellLacAnswer:
    check_size(view, _PLAIN_BODY_SIZE_BYTES, Opcode.TELL_LAC)
    _, number, ledger_id, lac = _FIELDS.unpack(view)
    return TellLacAnswer(code_of(number), ledger_id, lac)


def _decode_read(view: memoryview) -> ReadAnswer:
    _, number, ledger_id, entry_id = _FIELDS.unpack_from(view)
    code = code_of(number)
    entry = bytes(view[_PLAIN_BODY_SIZE_BYTES:]) if code is Code.OK else None
    return ReadAnswer(code, ledger_id, entry_id, entry)


def _decode_batch_read(view: memoryview) -> BatchReadAnswer:
    return BatchReadAnswer(*_batch_fields(view))


def _decode_read_slices(view: memoryview) -> SliceReadAnswer:
    return SliceReadAnswer(*_batch_fields(view))


def _batch_fields(view: memoryview) -> tuple[Code, int, int, int, Sequence[bytes]]:
    _, number, ledger_id, entry_id, request_id = _NUMBERED_FIELDS.unpack_from(view)
    code = code_of(number)
    entries: Sequence[bytes] = ()
    if code is Code.OK:
        entries = StoredBatch(view[_NUMBERED_BODY_SIZE_BYTES:])
    return code, ledger_id, entry_id, request_id, entries


_DECODERS: dict[int, Callable[[memoryview], Answer]] = {
    Opcode.ADD: _decode_add,
    Opcode.READ: _decode_read,
    Opcode.AUTH: _decode_auth,
    Opcode.BATCH_READ: _decode_batch_read,
    Opcode.READ_SLICES: _decode_read_slices,
    Opcode.ADD_RUN: _decode_add_run,
    Opcode.TELL_LAC: _decode_tell_lac,
}
