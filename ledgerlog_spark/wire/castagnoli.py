"""CRC32C of any buffer, chained: what files and frames share with the entry digest."""

from __future__ import annotations

from crc32c import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC32C (Castagnoli) of `data`, going on from `seed`, as an unsigned 32-bit number."""
    checksum: int = _crc32c(data, seed)
    return checksum
