"""Encodes and decodes bounds of a range's columns, for the items of a log's list (LOGS.md#G3).

The encoded bounds are a sequence of columns. Each column has this layout:

    varint  column          place among the schema's top-level fields
    varint  null count
    u8      bits 0-3: kind of the bounds, bit 4: the minimum is exact,
            bit 5: the maximum is exact, bit 6: a minimum follows, bit 7: a maximum follows
        bounds  minimum, then maximum, each encoded by its kind

A bound of kind int is a zigzag varint. A float has 8 bytes, big-endian. A bool has one byte. Text
and bytes begin with their length as a varint, and are shortened to at most 32 bytes. Text is
shortened between two characters. If a maximum was shortened, a larger value of at most 32 bytes
replaces it, so that it stays a bound. If there is no such value, the maximum is omitted.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.protocol.log.state.bytes import (
    ByteReader,
    append_blob,
    append_varint,
    append_zigzag,
)

COLUMNS_MAX = 32
BOUND_SIZE_BYTES_MAX = 32

Bound = bool | int | float | str | bytes

_BOOL, _INT, _FLOAT, _TEXT, _BYTES = range(5)
_KINDS: dict[type, int] = {bool: _BOOL, int: _INT, float: _FLOAT, str: _TEXT, bytes: _BYTES}
_FLOAT_LAYOUT = struct.Struct(">d")
_KIND_BITS, _MIN_EXACT, _MAX_EXACT, _HAS_MIN, _HAS_MAX = 0x0F, 0x10, 0x20, 0x40, 0x80
_INT_END = 1 << 127
_CHARACTER_LAST, _SURROGATE_FIRST, _SURROGATE_END = 0x10FFFF, 0xD800, 0xE000


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of the values of one column in one range.

    Dates, times and timestamps are ints in the unit of the column. Decimals are unscaled ints.
    """

    column: int  # place among the schema's top-level fields
    null_count: int
    minimum: Bound | None = None  # <= every value; None if it is unknown or there are no values
    maximum: Bound | None = None  # >= every value; None if it is unknown or there are no values
    is_minimum_exact: bool = True
    is_maximum_exact: bool = True


def encode_statistics(columns: Sequence[ColumnStatistics], *, size_bytes_max: int) -> bytes:
    """Encode the first columns, as many as fit into `size_bytes_max`, but at most 32 columns.

    The caller puts the most important column first. `size_bytes_max` is 1,024, or 64 in a log of
    more than 10,000 items.
    """
    out = bytearray()
    for column in columns[:COLUMNS_MAX]:
        encoded = _encode_column(_cut(column))
        if len(out) + len(encoded) > size_bytes_max:
            break
        out += encoded
    return bytes(out)


def decode_statistics(data: bytes) -> tuple[ColumnStatistics, ...]:
    """Decode the columns that `encode_statistics` encoded."""
    reader = ByteReader(data)
    columns = []
    while reader.remaining:
        columns.append(_decode_column(reader))
        if len(columns) > COLUMNS_MAX:
            raise WireFormatError(f"statistics have more than {COLUMNS_MAX} columns")
    return tuple(columns)


def shorten_statistics(data: bytes, *, size_bytes_max: int) -> bytes:
    """Return the first columns of encoded statistics, as many as fit into `size_bytes_max`."""
    if len(data) <= size_bytes_max:
        return data
    reader = ByteReader(data)
    fitting = 0
    while reader.remaining:
        _decode_column(reader)
        if reader.position > size_bytes_max:
            break
        fitting = reader.position
    return data[:fitting]


def _encode_column(column: ColumnStatistics) -> bytes:
    out = bytearray()
    append_varint(out, column.column)
    append_varint(out, column.null_count)
    sample = column.maximum if column.minimum is None else column.minimum
    flags = 0 if sample is None else _KINDS[type(sample)]
    flags |= _MIN_EXACT * column.is_minimum_exact | _MAX_EXACT * column.is_maximum_exact
    flags |= _HAS_MIN * (column.minimum is not None) | _HAS_MAX * (column.maximum is not None)
    out.append(flags)
    for bound in (column.minimum, column.maximum):
        if bound is not None:
            _append_bound(out, bound)
    return bytes(out)


def _append_bound(out: bytearray, bound: Bound) -> None:
    if isinstance(bound, bool):
        out.append(bound)
    elif isinstance(bound, int):
        append_zigzag(out, bound)
    elif isinstance(bound, float):
        out += _FLOAT_LAYOUT.pack(bound)
    else:
        append_blob(out, bound.encode() if isinstance(bound, str) else bound)


def _decode_column(reader: ByteReader) -> ColumnStatistics:
    column = reader.varint()
    null_count = reader.varint()
    flags = reader.byte()
    kind = flags & _KIND_BITS
    minimum = _read_bound(reader, kind) if flags & _HAS_MIN else None
    maximum = _read_bound(reader, kind) if flags & _HAS_MAX else None
    return ColumnStatistics(
        column,
        null_count,
        minimum,
        maximum,
        is_minimum_exact=bool(flags & _MIN_EXACT),
        is_maximum_exact=bool(flags & _MAX_EXACT),
    )


def _read_bound(reader: ByteReader, kind: int) -> Bound:
    if kind == _BOOL:
        return reader.byte() != 0
    if kind == _INT:
        return reader.zigzag()
    if kind == _FLOAT:
        (number,) = _FLOAT_LAYOUT.unpack(reader.take(_FLOAT_LAYOUT.size))
        return float(number)
    if kind in (_TEXT, _BYTES):
        data = reader.take(reader.length(BOUND_SIZE_BYTES_MAX))
        return data if kind == _BYTES else reader.text_of(data)
    raise WireFormatError(f"statistics have bounds of the unknown kind {kind}")


def _cut(column: ColumnStatistics) -> ColumnStatistics:
    """Shorten the bounds of the column to at most 32 bytes. Omit them if this is impossible."""
    minimum, maximum = column.minimum, column.maximum
    mixed = minimum is not None and maximum is not None and type(minimum) is not type(maximum)
    if mixed or _is_no_bound(minimum) or _is_no_bound(maximum):
        return replace(column, minimum=None, maximum=None)
    if isinstance(minimum, (str, bytes)) and _size(minimum) > BOUND_SIZE_BYTES_MAX:
        column = replace(column, minimum=_prefix(minimum), is_minimum_exact=False)
    if isinstance(maximum, (str, bytes)) and _size(maximum) > BOUND_SIZE_BYTES_MAX:
        column = replace(column, maximum=_raised(_prefix(maximum)), is_maximum_exact=False)
    return column


def _is_no_bound(bound: Bound | None) -> bool:
    """Whether `bound` is NaN, which has no order, or an int that is too wide for any column."""
    if isinstance(bound, float):
        return math.isnan(bound)
    return isinstance(bound, int) and not -_INT_END <= bound < _INT_END


def _size(bound: str | bytes) -> int:
    return len(bound.encode() if isinstance(bound, str) else bound)


def _prefix(bound: str | bytes) -> str | bytes:
    if isinstance(bound, bytes):
        return bound[:BOUND_SIZE_BYTES_MAX]
    return bound.encode()[:BOUND_SIZE_BYTES_MAX].decode(errors="ignore")


def _raised(prefix: str | bytes) -> str | bytes | None:
    """Return the smallest bound above all values that begin with `prefix`; None if none exists."""
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    kept_text = prefix.rstrip(chr(_CHARACTER_LAST))
    while kept_text:
        code = ord(kept_text[-1]) + 1
        code = _SURROGATE_END if code == _SURROGATE_FIRST else code
        raised = kept_text[:-1] + chr(code)
        if _size(raised) <= BOUND_SIZE_BYTES_MAX:
            return raised
        kept_text = kept_text[:-1].rstrip(chr(_CHARACTER_LAST))
    return None
