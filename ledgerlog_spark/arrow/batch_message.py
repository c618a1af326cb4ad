"""Finds the parts of an encoded record batch: the header, and the buffers in the body.

    encapsulated message = FFFFFFFF | header size i32 | header (a flatbuffer) | body

pyarrow decodes such a message, but does not return the places of its parts. All numbers are
little-endian. This module checks each place. So bytes that are not a record batch cause an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error, unpack_from
from typing import NamedTuple

import pyarrow as pa

from ledgerlog_spark.errors import WireFormatError

Buffer = bytes | bytearray | memoryview

BUFFER = Struct("<qq")
"""How the header describes a buffer: its offset in the body, and its length without padding."""

_PREFIX = Struct("<Ii")
_CONTINUATION = 0xFFFFFFFF
_U16 = Struct("<H")
_I32 = Struct("<i")
_U32 = Struct("<I")
_I64 = Struct("<q")
_RECORD_BATCH = 3

# Numbers of three fields of the flatbuffer table Message, and of one field of RecordBatch.
_HEADER_TYPE, _HEADER, _BODY_SIZE = 1, 2, 3
_BUFFERS = 2


class BatchMessage(NamedTuple):
    """The places and the sizes of the parts of one message.

    Places are counted from the beginning of the message.
    """

    body_start: int
    body_size: int
    body_size_place: int  # place in the header where `body_size` is stored, as i64
    buffers_place: int  # place in the header where the first `BUFFER` is stored
    buffers: tuple[tuple[int, int], ...]  # offset and length of each buffer


def find_parts(message: Buffer) -> BatchMessage:
    """Find the parts of a message. The header must be complete, but the body may be missing.

    Raises:
        WireFormatError: The bytes do not begin with the header of a record batch.
    """
    try:
        return _find_parts(memoryview(message))
    except (error, IndexError) as cause:
        raise WireFormatError(f"not the header of a record batch: {cause}") from cause


def _find_parts(message: memoryview) -> BatchMessage:
    continuation, header_size = _PREFIX.unpack_from(message)
    if continuation != _CONTINUATION or not 0 < header_size <= len(message) - _PREFIX.size:
        raise WireFormatError("the bytes do not begin with the header of an Arrow message")
    header = message[_PREFIX.size : _PREFIX.size + header_size]
    (root,) = _U32.unpack_from(header)
    type_place = _field(header, root, _HEADER_TYPE)
    batch_place = _field(header, root, _HEADER)
    size_place = _field(header, root, _BODY_SIZE)
    if not type_place or not batch_place or not size_place or header[type_place] != _RECORD_BATCH:
        raise WireFormatError("the bytes are not a record batch with a body")
    (body_size,) = _I64.unpack_from(header, size_place)
    buffers_place = _field(header, _target(header, batch_place), _BUFFERS)
    if not buffers_place:
        raise WireFormatError("a record batch has no list of its buffers")
    vector = _target(header, buffers_place)
    (count,) = _U32.unpack_from(header, vector)
    first = vector + _U32.size
    if count * BUFFER.size > len(header) - first:
        raise WireFormatError(f"the header of a record batch is too short for {count} buffers")
    numbers = unpack_from(f"<{2 * count}q", header, first)
    return BatchMessage(
        body_start=_PREFIX.size + header_size,
        body_size=body_size,
        body_size_place=_PREFIX.size + size_place,
        buffers_place=_PREFIX.size + first,
        buffers=tuple(zip(numbers[::2], numbers[1::2], strict=True)),
    )


def _target(header: memoryview, place: int) -> int:
    """Return the place to which the reference stored at `place` points."""
    return place + int(_U32.unpack_from(header, place)[0])


def _field(header: memoryview, table: int, number: int) -> int:
    """Return the place of a field of a table, or 0 if the table does not have the field."""
    vtable = table - _I32.unpack_from(header, table)[0]
    if vtable < 0:
        raise WireFormatError("a table of a record batch begins before the header")
    (size,) = _U16.unpack_from(header, vtable)
    entry = 4 + 2 * number
    if entry + 2 > size:
        return 0
    (offset,) = _U16.unpack_from(header, vtable + entry)
    return table + int(offset) if offset else 0


def buffer_counts(schema: pa.Schema) -> tuple[int, ...] | None:
    """Return the number of buffers of each column.

    The result is None if a column has parts other than buffers.
    """
    counts = [_buffers_of(field.type) for field in schema]
    return None if None in counts else tuple(count for count in counts if count is not None)


def _buffers_of(kind: pa.DataType) -> int | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _buffers_of(kind.storage_type)
    own = next((count for is_kind, count in _OWN_BUFFERS if is_kind(kind)), None)
    return None if own is None else _sum_of(own, _parts_of(kind))


def _parts_of(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the parts of a nested type."""
    if pa.types.is_struct(kind):
        return [kind.field(place).type for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_nested(kind) else []


_OWN_BUFFERS: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
    (pa.types.is_null, 0),
    (pa.types.is_struct, 1),
    (pa.types.is_map, 3),  # 2 buffers of the list, and 1 of the struct in the list
    (pa.types.is_list, 2),
    (pa.types.is_large_list, 2),
    (pa.types.is_fixed_size_list, 1),
    (pa.types.is_string, 3),
    (pa.types.is_large_string, 3),
    (pa.types.is_fixed_size_binary, 2),
    (pa.types.is_binary, 3),
    (pa.types.is_large_binary, 3),
    (pa.types.is_primitive, 2),
    (pa.types.is_decimal, 2),
)
"""Pairs of a test for a type, and the number of buffers of a column of this type.

The buffers of the parts of a nested type are not counted. A column of any other type has parts
other than buffers, for example a dictionary.
"""


def _sum_of(own: int, kinds: Sequence[pa.DataType]) -> int | None:
    counts = [_buffers_of(kind) for kind in kinds]
    return None if None in counts else own + sum(count for count in counts if count is not None)
