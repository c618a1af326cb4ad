"""Encodes and decodes the copies of groups in journal files (FORMATS.md#journal-files).

A copy consists of a head of 512 bytes and the bytes of the group, as they are in the entry-log
file. The head is at a multiple of 512 bytes.

    offset  size  field                     all numbers big-endian
         0     4  magic "LGRP"
         4     2  format version, 1
         6     2  zero
         8     8  run id
        16     8  number of the copy in the run, from 1
        24     8  sequence of the first record
        32     8  sequence of the last record
        40     8  id of the entry-log file
        48    16  salt of the entry-log file
        64     8  offset of the group in the entry-log file
        72     4  size of the group
        76     4  CRC32C of the group
        80     4  number of the journal file
        84     8  offset of the copy in the journal file
        92     8  needed from (sequence): all earlier records are synced in entry-log files
       100     8  sequence of the last record of the previous copy, which is synced; 0 if none
       108     4  CRC32C of the head before this field
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from bookie_server.core.requests import Buffer
from ledgerlog_spark.wire.digests import crc32c

MAGIC = b"LGRP"
FORMAT_VERSION = 1
HEAD_SIZE = 512
ALIGNMENT = 512
_head = Struct(">4sHH8sQQQQ16sQIIIQQQ")
_checksum = Struct(">I")


@dataclass(frozen=True, slots=True)
class GroupCopy:
    """The head of a copy: what the group contains, and where the group and the copy are."""

    run_id: bytes
    number: int
    first_sequence: int
    last_sequence: int
    file_id: int
    salt: bytes
    offset: int
    size: int
    checksum: int
    journal_file: int
    journal_offset: int
    needed_from: int
    previous_sequence: int

    @property
    def end(self) -> int:
        """Offset of the next copy in the journal file."""
        return self.journal_offset + size_of_copy(self.size)


def size_of_copy(group_size: int) -> int:
    """Return the bytes that the copy of a group takes in a journal file."""
    return HEAD_SIZE + (group_size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def checksum_of(buffers: Sequence[Buffer], checksum: int = 0) -> int:
    """Return the CRC32C of consecutive buffers.

    `checksum` is the CRC32C of the bytes before them.
    """
    for buffer in buffers:
        checksum = crc32c(buffer, checksum)
    return checksum


def encode_copy_head(copy: GroupCopy) -> bytes:
    """Return the head of a copy, 512 bytes."""
    head = _head.pack(
        MAGIC,
        FORMAT_VERSION,
        0,
        copy.run_id,
        copy.number,
        copy.first_sequence,
        copy.last_sequence,
        copy.file_id,
        copy.salt,
        copy.offset,
        copy.size,
        copy.checksum,
        copy.journal_file,
        copy.journal_offset,
        copy.needed_from,
        copy.previous_sequence,
    )
    return (head + _checksum.pack(crc32c(head))).ljust(HEAD_SIZE, b"\0")


def decode_copy_head(
    data: Buffer, run_id: bytes, journal_file: int, journal_offset: int
) -> GroupCopy | None:
    """Return the head at the start of `data`, or None if it is not a head of this run and place."""
    if len(data) < HEAD_SIZE or bytes(data[:4]) != MAGIC:
        return None
    head = bytes(data[: _head.size])
    if _checksum.unpack_from(data, _head.size)[0] != crc32c(head):
        return None
    _, version, _, *fields = _head.unpack(head)
    copy = GroupCopy(*fields)
    if version != FORMAT_VERSION or copy.run_id != run_id:
        return None
    if (copy.journal_file, copy.journal_offset) != (journal_file, journal_offset):
        return None
    return copy
