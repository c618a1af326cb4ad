"""Encodes and decodes numbers and texts of variable length in the stored records of a log.

A varint stores 7 bits of the number in each byte, the lowest bits first. Bit 7 is set in all bytes
except the last. A zigzag number is a varint in which 0, 1, 2, 3 mean 0, -1, 1, -2.
"""

from __future__ import annotations

from ledgerlog_spark.errors import WireFormatError

VARINT_SIZE_BYTES_MAX = 19
"""Maximum size of a varint. It is enough for the 128 bits of a decimal's unscaled value."""

_MORE, _BITS = 0x80, 0x7F


def append_varint(out: bytearray, number: int) -> None:
    """Append a number of at least 0 as a varint."""
    assert number >= 0, number
    while number > _BITS:
        out.append(number & _BITS | _MORE)
        number >>= 7
    out.append(number)


def append_zigzag(out: bytearray, number: int) -> None:
    """Append a number, which may be negative, as a zigzag number."""
    append_varint(out, number << 1 if number >= 0 else ((-number) << 1) - 1)


def append_text(out: bytearray, text: str) -> None:
    """Append the length of the text in bytes, then the text in UTF-8."""
    append_blob(out, text.encode())


def append_blob(out: bytearray, data: bytes) -> None:
    """Append the number of bytes, then the bytes."""
    append_varint(out, len(data))
    out += data


class ByteReader:
    """Reads bytes that the `append_` functions wrote. Raises WireFormatError for other bytes."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def remaining(self) -> int:
        """Number of bytes that were not read yet."""
        return len(self._data) - self.position

    def byte(self) -> int:
        """Read the next byte."""
        if self.position >= len(self._data):
            raise WireFormatError("a record ends too early")
        value = self._data[self.position]
        self.position += 1
        return value

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        if count > self.remaining:
            raise WireFormatError(f"a record ends {count - self.remaining} bytes too early")
        data = self._data[self.position : self.position + count]
        self.position += count
        return data

    def varint(self) -> int:
        """Read a number that `append_varint` wrote."""
        data, position = self._data, self.position
        number = shift = 0
        for byte in data[position : position + VARINT_SIZE_BYTES_MAX]:
            position += 1
            number |= (byte & _BITS) << shift
            if byte < _MORE:
                self.position = position
                return number
            shift += 7
        raise WireFormatError("a number in a record is cut off or too long")

    def zigzag(self) -> int:
        """Read a number that `append_zigzag` wrote."""
        number = self.varint()
        return number >> 1 if number & 1 == 0 else -((number + 1) >> 1)

    def length(self, size_max: int) -> int:
        """Read a length. Raise an error if it is larger than `size_max`."""
        size = self.varint()
        if size > size_max:
            raise WireFormatError(f"a field has the size {size}, more than {size_max}")
        return size

    def blob(self, size_bytes_max: int) -> bytes:
        """Read the bytes that `append_blob` wrote."""
        return self.take(self.length(size_bytes_max))

    def text(self, size_bytes_max: int) -> str:
        """Read a text that `append_text` wrote."""
        return self.text_of(self.blob(size_bytes_max))

    @staticmethod
    def text_of(data: bytes) -> str:
        """Decode `data`, which must be UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise WireFormatError(f"text in a record is not UTF-8: {error}") from None

    def expect_end(self) -> None:
        """Raise an error unless all bytes were read."""
        if self.remaining:
            raise WireFormatError(f"there are {self.remaining} bytes after a record")
