"""Encodes and decodes heads, pages and producer records (LOGS.md#formats).

Every stored record begins with this envelope. The body follows:

    4s   magic b"LLOG"
    u8   kind: 1 head, 2 items, 3 history, 4 schemas, 5 references, 6 producer record
    u8   format of the body
    u8   compression of the body: 0 none, 1 zlib
    u8   always 0
    u32  size of the body before compression
    u32  CRC-32 of the body before compression

Decoders accept any bytes. They raise `WireFormatError` for invalid bytes, and `MetadataFormatError`
for a record that a later release wrote.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import TypeVar

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.protocol.log.state.bytes import (
    ByteReader,
    append_blob,
    append_text,
    append_varint,
    append_zigzag,
)
from ledgerlog_spark.protocol.log.state.records import (
    HEAD_SIZE_BYTES_MAX,
    LOG_FORMAT,
    PAGE_SIZE_BYTES_MAX,
    RUNS_REMEMBERED_MAX,
    LogContent,
    LogHead,
    LogKind,
    Paged,
    PageRef,
    ProducerRecord,
)
from ledgerlog_spark.protocol.log.state.rows import (
    HISTORY,
    ITEMS,
    REFS,
    SCHEMAS,
    RecordKind,
    decode_open_ledgers,
    encode_open_ledgers,
)

T = TypeVar("T")

NAME_SIZE_BYTES_MAX = 200
TEXT_SIZE_BYTES_MAX = 4_096
PROPERTIES_SIZE_BYTES_MAX = 2_048
FEATURES_MAX = 64
RUNS_STORED_MAX = 4_096
"""Maximum number of query runs in a producer record that an older release wrote."""
BODY_SIZE_BYTES_MAX = 1 << 20
"""Maximum size of a body before compression. The size in the envelope is compared with this maximum
before the body is decompressed."""

_ENVELOPE = Struct(">4sBBBBII")
_MAGIC = b"LLOG"
_HEAD, _PRODUCER = 1, 6
_PLAIN, _ZLIB = 0, 1
_ZLIB_LEVEL = 6
_PROPERTIES_MAX = 256


def encode_head(head: LogHead) -> bytes:
    """Encode the head. The result has at most 16 KiB."""
    assert not head.open_ledgers or head.kind is LogKind.LEADER, "the log has no leader"
    out = bytearray()
    append_text(out, head.log_id)
    append_text(out, head.name)
    out.append(head.kind)
    out.append(head.content)
    for number in (head.version, head.start_offset, head.end_offset):
        append_varint(out, number)
    append_zigzag(out, head.schema_id)
    append_varint(out, head.commit_time_ms)
    out += bytes.fromhex(head.token)
    append_varint(out, head.oldest_version)
    append_varint(out, head.oldest_offset)
    append_varint(out, head.deleted_ms)
    append_varint(out, len(head.properties))
    for name in sorted(head.properties):
        append_text(out, name)
        append_text(out, head.properties[name])
    for features in (head.reader_features, head.writer_features):
        append_varint(out, len(features))
        for feature in features:
            append_text(out, feature)
    _append_paged(out, ITEMS, head.items)
    _append_paged(out, HISTORY, head.history)
    _append_paged(out, SCHEMAS, head.schemas)
    if head.kind is LogKind.LEADER:
        out += encode_open_ledgers(head.open_ledgers)
    data = _wrap(_HEAD, bytes(out), log_format=head.log_format)
    if len(data) > HEAD_SIZE_BYTES_MAX:
        raise LocalProtocolError(
            f"the head of log {head.name!r} takes {len(data)} bytes, but at most "
            f"{HEAD_SIZE_BYTES_MAX} are allowed",
            log=head.name,
            size_bytes=len(data),
        )
    return data


def decode_head(data: bytes) -> LogHead:
    """Decode a head that `encode_head` encoded."""
    reader = ByteReader(_unwrap(_HEAD, data, size_bytes_max=HEAD_SIZE_BYTES_MAX))
    head = LogHead(  # the fields are stored in this order
        log_id=reader.text(NAME_SIZE_BYTES_MAX),
        name=reader.text(NAME_SIZE_BYTES_MAX),
        kind=_enum(LogKind, reader.byte()),
        content=_enum(LogContent, reader.byte()),
        version=reader.varint(),
        start_offset=reader.varint(),
        end_offset=reader.varint(),
        schema_id=reader.zigzag(),
        commit_time_ms=reader.varint(),
        token=reader.take(16).hex(),
        oldest_version=reader.varint(),
        oldest_offset=reader.varint(),
        deleted_ms=reader.varint(),
        properties={
            reader.text(TEXT_SIZE_BYTES_MAX): reader.text(TEXT_SIZE_BYTES_MAX)
            for _ in range(reader.length(_PROPERTIES_MAX))
        },
        reader_features=_texts(reader),
        writer_features=_texts(reader),
        items=_take_paged(reader, ITEMS),
        history=_take_paged(reader, HISTORY),
        schemas=_take_paged(reader, SCHEMAS),
    )
    # The first release, which stored only empty leader logs, did not store open ledgers.
    if head.kind is LogKind.LEADER and reader.remaining:
        head = replace(head, open_ledgers=decode_open_ledgers(reader))
    reader.expect_end()
    follows = not head.open_ledgers or head.open_ledgers[0].first_offset == head.end_offset
    is_ordered = head.oldest_offset <= head.start_offset <= head.end_offset
    if not is_ordered or head.oldest_version > head.version or not follows:
        raise WireFormatError(f"the head of log {head.name!r} contradicts itself")
    return head


def encode_page(kind: RecordKind[T], records: Sequence[T]) -> bytes:
    """Encode the records of a page. The result has at most 256 KiB."""
    data = _wrap(kind.page_kind, kind.encode(records))
    if len(data) > PAGE_SIZE_BYTES_MAX:
        raise LocalProtocolError(
            f"a page of {kind.name} has {len(data)} bytes, but at most {PAGE_SIZE_BYTES_MAX} are "
            "allowed",
            size_bytes=len(data),
        )
    return data


def decode_page(kind: RecordKind[T], data: bytes) -> tuple[T, ...]:
    """Decode the records of a page of this kind."""
    reader = ByteReader(_unwrap(kind.page_kind, data, size_bytes_max=PAGE_SIZE_BYTES_MAX))
    records = kind.decode(reader)
    reader.expect_end()
    return records


def encode_producer(record: ProducerRecord) -> bytes:
    """Encode a producer record. Only its last 64 query runs are stored."""
    out = bytearray()
    append_varint(out, record.epoch)
    append_zigzag(out, record.last_batch_id)
    append_blob(out, bytes.fromhex(record.token))
    append_varint(out, record.time_ms)
    runs = record.runs[-RUNS_REMEMBERED_MAX:]
    append_varint(out, len(runs))
    for run in runs:
        append_text(out, run)
    return _wrap(_PRODUCER, bytes(out))


def decode_producer(data: bytes) -> ProducerRecord:
    """Decode a producer record that `encode_producer` encoded."""
    reader = ByteReader(_unwrap(_PRODUCER, data, size_bytes_max=BODY_SIZE_BYTES_MAX))
    record = ProducerRecord(  # the fields are stored in this order
        epoch=reader.varint(),
        last_batch_id=reader.zigzag(),
        token=reader.blob(16).hex(),
        time_ms=reader.varint(),
        runs=tuple(reader.text(NAME_SIZE_BYTES_MAX) for _ in range(reader.length(RUNS_STORED_MAX))),
    )
    reader.expect_end()
    return record


def _append_paged(out: bytearray, kind: RecordKind[T], paged: Paged[T]) -> None:
    out += REFS.encode(paged.index)
    out += REFS.encode(paged.pages)
    out += kind.encode(paged.recent)


def _take_paged(reader: ByteReader, kind: RecordKind[T]) -> Paged[T]:
    index: tuple[PageRef, ...] = REFS.decode(reader)
    return Paged(index, REFS.decode(reader), kind.decode(reader))


def _texts(reader: ByteReader) -> tuple[str, ...]:
    return tuple(reader.text(TEXT_SIZE_BYTES_MAX) for _ in range(reader.length(FEATURES_MAX)))


E = TypeVar("E", LogKind, LogContent)


def _enum(enum: type[E], number: int) -> E:
    try:
        return enum(number)
    except ValueError:
        raise WireFormatError(f"unknown {enum.__name__} {number}") from None


def _wrap(kind: int, body: bytes, *, log_format: int = LOG_FORMAT) -> bytes:
    assert len(body) <= BODY_SIZE_BYTES_MAX, len(body)
    packed = zlib.compress(body, _ZLIB_LEVEL)
    compression, stored = (_ZLIB, packed) if len(packed) < len(body) else (_PLAIN, body)
    header = _ENVELOPE.pack(_MAGIC, kind, log_format, compression, 0, len(body), zlib.crc32(body))
    return header + stored


def _unwrap(kind: int, data: bytes, *, size_bytes_max: int) -> bytes:
    if not _ENVELOPE.size <= len(data) <= size_bytes_max or data[:4] != _MAGIC:
        raise WireFormatError(f"these {len(data)} bytes are not a record of a log")
    _, found, log_format, compression, _, size, crc = _ENVELOPE.unpack_from(data)
    if log_format != LOG_FORMAT:
        raise MetadataFormatError(
            f"a record of a log has format {log_format}, but this version reads only format "
            f"{LOG_FORMAT}: use the version of ledgerlog that wrote it, or a later version",
            log_format=log_format,
        )
    if found != kind:
        raise WireFormatError(f"a record has the kind {found} instead of {kind}")
    if size > BODY_SIZE_BYTES_MAX:
        raise WireFormatError(f"the size of a record, {size} bytes, exceeds the limit")
    body = _unpacked(data[_ENVELOPE.size :], compression, size)
    if len(body) != size or zlib.crc32(body) != crc:
        raise WireFormatError("the checksum of a record does not match")
    return body


def _unpacked(stored: bytes, compression: int, size: int) -> bytes:
    if compression == _PLAIN:
        return stored
    if compression != _ZLIB:
        raise WireFormatError(f"a record has the unknown compression {compression}")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(stored, size + 1)
    except zlib.error as error:
        raise WireFormatError(f"a record cannot be decompressed: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise WireFormatError("the compressed size of a record does not match")
    return body
