"""The two header sectors of a slot, which identify its file (FORMATS.md#slots).

    offset  size  field                     all numbers big-endian
         0     4  magic "LSLT"
         4     1  format version, 1
         5     1  state: 1 open, 2 finished
         6     2  zero
         8     8  generation: the valid sector with the larger generation counts
        16     8  file id
        24    16  salt
        40     8  file size in bytes
        48     8  offset of the finish record, 0 while open
        56     8  last sequence, 0 while open
        64     4  CRC32C of the bytes before

Sector A is at byte 0, sector B at byte 4096. The two sectors are written alternately, so a torn
write of one sector leaves the other sector intact. Records start at byte 8192.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from bookie_server.core.record import FileIdentity
from ledgerlog_spark.wire.digests import crc32c

MAGIC = b"LSLT"
FORMAT_VERSION = 1
SECTOR_SIZE = 512
SECTOR_OFFSETS = (0, 4096)
RECORDS_START = 8192
HEADER_AREA_SIZE = 4096 + SECTOR_SIZE

_sector = Struct(">4sBBHQQ16sQQQ")
_checksum = Struct(">I")


class SlotState(IntEnum):
    """The state of the slot's file."""

    OPEN = 1
    FINISHED = 2


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """One decoded header sector."""

    state: SlotState
    generation: int
    file_id: int
    salt: bytes
    file_size: int
    finish_offset: int = 0
    last_sequence: int = 0

    def identity(self, name: str) -> FileIdentity:
        """Return the identity of the file in the slot `name`."""
        return FileIdentity(name, self.file_id, self.salt)

    @property
    def sector_offset(self) -> int:
        """Offset at which the sector of this generation is written."""
        return SECTOR_OFFSETS[self.generation % 2]


def encode_slot_header(header: SlotHeader) -> bytes:
    """Return one sector, 512 bytes."""
    head = _sector.pack(
        MAGIC,
        FORMAT_VERSION,
        header.state,
        0,
        header.generation,
        header.file_id,
        header.salt,
        header.file_size,
        header.finish_offset,
        header.last_sequence,
    )
    return (head + _checksum.pack(crc32c(head))).ljust(SECTOR_SIZE, b"\0")


def decode_slot_header(data: bytes) -> SlotHeader | None:
    """Return the newest valid header in the first `HEADER_AREA_SIZE` bytes of a slot, or None."""
    found = [_decode_sector(data[start : start + SECTOR_SIZE]) for start in SECTOR_OFFSETS]
    valid = [header for header in found if header is not None]
    return max(valid, key=lambda header: header.generation, default=None)


def _decode_sector(sector: bytes) -> SlotHeader | None:
    if len(sector) < _sector.size + _checksum.size:
        return None
    head = sector[: _sector.size]
    if _checksum.unpack_from(sector, _sector.size)[0] != crc32c(head):
        return None
    magic, version, state, _, generation, file_id, salt, size, finish, last = _sector.unpack(head)
    if magic != MAGIC or version != FORMAT_VERSION or state not in (1, 2):
        return None
    return SlotHeader(SlotState(state), generation, file_id, salt, size, finish, last)
