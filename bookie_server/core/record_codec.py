"""Encodes and decodes records of the journal (FORMATS.md#records).

    offset  size  field                     all numbers big-endian
         0     4  magic "LREC"
         4     1  format version, 1
         5     1  kind
         6     2  flags: 1 recovery add, 2 ids are listed, 4 lengths are listed, 8 release
         8     4  CRC32C of the header with zeros in this field, seeded with file and offset
        12     4  header size
        16     8  file id
        24     8  sequence
        32     8  origin sequence
        40     8  durable up to (sequence)
        48     8  ledger id
        56     8  first entry id; value of a control record
        64     4  count of entries
        68     4  stride of the ids; 0 when they are listed; epoch of a limbo record
        72     4  length of every entry; 0 when they are listed
        76     4  body size
        80    20  master key
       100     4  zero
       104   8*n  entry ids, when listed
             4*n  lengths, when listed
             4*m  CRC32C of each 64 KiB of the body, seeded with file and offset

`n` is the count of entries, and `m` the number of parts of 64 KiB of the body. The body follows the
header immediately. The next record starts at the next multiple of 512 bytes.
"""

from __future__ import annotations

import struct
from struct import Struct

from bookie_server.core.record import FileIdentity, JournalRecord, JournalRecordKind
from bookie_server.core.requests import Buffer
from bookie_server.errors import CorruptRecordError
from ledgerlog_spark.model import RUN_ENTRIES_MAX
from ledgerlog_spark.wire.digests import crc32c

MAGIC = b"LREC"
FORMAT_VERSION = 1
ALIGNMENT = 512
CHUNK_SIZE = 1 << 16
BODY_SIZE_MAX = 1 << 26
FLAG_IDS_LISTED = 2
FLAG_LENGTHS_LISTED = 4
FLAGS_KNOWN = 15

_fixed = Struct(">4sBBHIIQQQQqqIIII20sI")
FIXED_SIZE = _fixed.size
HEADER_SIZE_MAX = FIXED_SIZE + 12 * RUN_ENTRIES_MAX + 4 * (BODY_SIZE_MAX // CHUNK_SIZE)
_checksum = Struct(">I")


def aligned(size: int) -> int:
    """Return `size` rounded up to the alignment of records."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def size_at_most(record: JournalRecord) -> int:
    """Return an upper bound of the bytes that a record takes in a file, including its padding."""
    body_size = record.body_size
    return FIXED_SIZE + ALIGNMENT + body_size + 12 * len(record.entry_ids) + 4 * (body_size >> 16)


def encode_header(record: JournalRecord) -> bytes:
    """Return the header of a record, and set the record's `header_size` and `chunk_checksums`.

    The `identity` and the `offset` of the record must be set. If the record has no `body`, its
    `body_size` and its `chunk_checksums` must be set too.
    """
    identity, body = record.identity, record.body
    assert identity is not None
    seed = identity.seed_at(record.offset)
    ids, lengths = record.entry_ids, record.lengths
    count, stride, length, flags = len(ids), record.epoch, 0, record.flags
    first = record.value
    extra = b""
    if count:
        first = ids[0]
        if type(ids) is range:
            stride = ids.step
        else:
            flags |= FLAG_IDS_LISTED
            extra = struct.pack(f">{count}q", *ids)
        length = lengths[0]
        if lengths.count(length) != count:
            length = 0
            flags |= FLAG_LENGTHS_LISTED
            extra += struct.pack(f">{count}I", *lengths)
    if body is not None:
        record.chunk_checksums = chunk_checksums(body, seed)
    checksums = record.chunk_checksums
    extra += struct.pack(f">{len(checksums)}I", *checksums)
    header_size = FIXED_SIZE + len(extra)
    record.header_size = header_size
    header = (
        _fixed.pack(
            MAGIC,
            FORMAT_VERSION,
            record.kind,
            flags,
            0,
            header_size,
            identity.file_id,
            record.sequence,
            record.origin_sequence,
            record.durable_upto,
            record.ledger_id,
            first,
            count,
            stride,
            length,
            record.body_size,
            record.master_key,
            0,
        )
        + extra
    )
    return header[:8] + _checksum.pack(crc32c(header, seed)) + header[12:]


def chunk_checksums(body: Buffer, seed: int) -> tuple[int, ...]:
    """Return the CRC32C of each 64 KiB of `body`."""
    size = len(body)
    if size <= CHUNK_SIZE:
        return (crc32c(body, seed),) if size else ()
    view = memoryview(body)
    return tuple(
        crc32c(view[start : start + CHUNK_SIZE], seed) for start in range(0, size, CHUNK_SIZE)
    )


def header_size_at(data: Buffer, identity: FileIdentity, offset: int) -> int:
    """Return the header size from the header at the start of `data`.

    Raise CorruptRecordError if there is no header, or if the size is out of range.
    """
    if len(data) < FIXED_SIZE:
        raise damage_at(identity, offset, "the file ends within a record header")
    if bytes(data[:4]) != MAGIC:
        raise damage_at(identity, offset, "no record begins here")
    size: int = _checksum.unpack_from(data, 12)[0]
    if not FIXED_SIZE <= size <= HEADER_SIZE_MAX:
        raise damage_at(identity, offset, "the header size is out of range")
    return size


def decode_header(data: Buffer, identity: FileIdentity, offset: int) -> JournalRecord:
    """Return the record whose header is at the start of `data`; the body is not verified."""
    header_size = header_size_at(data, identity, offset)
    if len(data) < header_size:
        raise damage_at(identity, offset, "the file ends within a record header")
    header = bytes(data[:header_size])
    fields = _fixed.unpack_from(header)
    plain = header[:8] + b"\0\0\0\0" + header[12:]
    if crc32c(plain, identity.seed_at(offset)) != fields[4]:
        raise damage_at(identity, offset, "the header's checksum does not match")
    _, version, kind, flags, _, _, file_id, sequence, origin, durable_upto = fields[:10]
    ledger_id, first, count, stride, length, body_size, master_key, zero = fields[10:]
    chunks = (body_size + CHUNK_SIZE - 1) // CHUNK_SIZE
    listed = 8 * bool(flags & FLAG_IDS_LISTED) + 4 * bool(flags & FLAG_LENGTHS_LISTED)
    if (
        version != FORMAT_VERSION
        or kind not in JournalRecordKind._value2member_map_
        or flags & ~FLAGS_KNOWN
        or file_id != identity.file_id
        or body_size > BODY_SIZE_MAX
        or count > RUN_ENTRIES_MAX
        or zero
        or header_size != FIXED_SIZE + listed * count + 4 * chunks
        or (count and not flags & FLAG_IDS_LISTED and not stride)
    ):
        raise damage_at(identity, offset, "the header's fields do not fit together")
    record = JournalRecord(JournalRecordKind(kind), ledger_id, master_key=master_key)
    record.flags = flags & ~(FLAG_IDS_LISTED | FLAG_LENGTHS_LISTED)
    place = FIXED_SIZE
    if not count:
        record.value, record.epoch = first, stride
    elif flags & FLAG_IDS_LISTED:
        record.entry_ids = struct.unpack_from(f">{count}q", header, place)
        place += 8 * count
    else:
        record.entry_ids = range(first, first + count * stride, stride)
    if flags & FLAG_LENGTHS_LISTED:
        record.lengths = struct.unpack_from(f">{count}I", header, place)
        place += 4 * count
    else:
        record.lengths = (length,) * count
    if count and sum(record.lengths) != body_size:
        raise damage_at(identity, offset, "the sum of the lengths is not the size of the body")
    record.chunk_checksums = struct.unpack_from(f">{chunks}I", header, place)
    record.body_size = body_size
    record.sequence, record.origin_sequence, record.durable_upto = sequence, origin, durable_upto
    record.identity, record.offset, record.header_size = identity, offset, header_size
    return record


def check_chunks(record: JournalRecord, first_chunk: int, data: Buffer) -> None:
    """Verify `data`, which contains whole chunks of the body from the chunk `first_chunk` on."""
    identity = record.identity
    assert identity is not None
    seed = identity.seed_at(record.offset)
    view = memoryview(data)
    count = (len(data) + CHUNK_SIZE - 1) // CHUNK_SIZE
    for number in range(count):
        chunk = view[number * CHUNK_SIZE : (number + 1) * CHUNK_SIZE]
        if crc32c(chunk, seed) != record.chunk_checksums[first_chunk + number]:
            raise damage_at(identity, record.offset, f"chunk {first_chunk + number} is damaged")


def damage_at(identity: FileIdentity, offset: int, reason: str) -> CorruptRecordError:
    """Return the error for damaged bytes of a file."""
    return CorruptRecordError(
        f"{identity.name} at byte {offset}: {reason}",
        path=identity.name,
        offset_bytes=offset,
        reason=reason,
    )
