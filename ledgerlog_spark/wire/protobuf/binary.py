"""The parts of the binary encoding of Protocol Buffers that BookKeeper's records need.

Each decoded field includes its raw bytes, so that the codec of a record can write unknown fields
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ledgerlog_spark.errors import WireFormatError

_U64 = 1 << 64
_I64_MIN = -(1 << 63)
_SEVEN_BITS = 0x7F
_VARINT_SIZE_BYTES_MAX = 10
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(_SEVEN_BITS + 1))
_FIELD_NUMBER_MAX = (1 << 29) - 1


class WireType(IntEnum):
    """The type of a field, which determines where its value ends. Groups (3 and 4) are refused."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


_WIRE_TYPES: Final = {kind.value: kind for kind in WireType}


class Field(NamedTuple):
    """One field of a message."""

    number: int
    wire_type: WireType
    value: int | bytes  # unsigned for a varint, bytes for everything else
    raw: bytes  # tag and value as in the message

    def as_int64(self) -> int:
        """Return the signed value of a varint field."""
        if not isinstance(self.value, int):
            raise WireFormatError(f"field {self.number} is not a number", field=self.number)
        return self.value - _U64 if self.value >= _U64 >> 1 else self.value

    def as_bytes(self) -> bytes:
        """Return the value of a length-delimited field."""
        if self.wire_type is not WireType.BYTES:
            raise WireFormatError(f"field {self.number} is not a byte string", field=self.number)
        assert isinstance(self.value, bytes)
        return self.value

    def as_text(self) -> str:
        """Return the value of a string field."""
        try:
            return self.as_bytes().decode()
        except UnicodeDecodeError as cause:
            raise WireFormatError(
                f"field {self.number} is not UTF-8 text", field=self.number
            ) from cause


def encode_varint(value: int) -> bytes:
    """Encode `value` in base 128, low bits first; if negative, as a 64-bit two's complement."""
    if 0 <= value <= _SEVEN_BITS:
        return _ONE_BYTE[value]
    assert _I64_MIN <= value < _U64
    value %= _U64
    encoded = bytearray()
    while value > _SEVEN_BITS:
        encoded.append(value & _SEVEN_BITS | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_number(number: int, value: int) -> bytes:
    """Return a varint field with the field number `number`."""
    return encode_varint(number << 3 | WireType.VARINT) + encode_varint(value)


def encode_bytes(number: int, value: bytes) -> bytes:
    """Return a length-delimited field (string, bytes or message) with the field number `number`."""
    return encode_varint(number << 3 | WireType.BYTES) + encode_varint(len(value)) + value


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the number that begins at `offset` (below 2**64), and the offset after it."""
    if offset < len(data) and data[offset] <= _SEVEN_BITS:
        return data[offset], offset + 1
    value = 0
    for place in range(_VARINT_SIZE_BYTES_MAX):
        if offset + place >= len(data):
            break
        byte = data[offset + place]
        value |= (byte & _SEVEN_BITS) << 7 * place
        if byte <= _SEVEN_BITS:
            if value >= _U64:
                break
            return value, offset + place + 1
    raise WireFormatError(f"no 64-bit number at byte {offset}", offset=offset)


def fields_of(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message, in their order."""
    offset = 0
    while offset < len(message):
        start = offset
        tag, offset = decode_varint(message, offset)
        number = tag >> 3
        if not 1 <= number <= _FIELD_NUMBER_MAX:
            raise WireFormatError(f"no field can have number {number}", offset=start)
        wire_type = _WIRE_TYPES.get(tag & 7)
        if wire_type is None:
            raise WireFormatError(
                f"field {number} has the unsupported wire type {tag & 7}", offset=start
            )
        value: int | bytes
        if wire_type is WireType.VARINT:
            value, offset = decode_varint(message, offset)
        else:
            value, offset = _delimited(message, offset, wire_type)
        yield Field(number, wire_type, value, message[start:offset])


def _delimited(message: bytes, offset: int, wire_type: WireType) -> tuple[bytes, int]:
    if wire_type is WireType.BYTES:
        size, offset = decode_varint(message, offset)
    else:
        size = 8 if wire_type is WireType.FIXED64 else 4
    end = offset + size
    if end > len(message):
        raise WireFormatError(
            f"a field has {size} bytes, but {len(message) - offset} are left", offset=offset
        )
    return message[offset:end], end
