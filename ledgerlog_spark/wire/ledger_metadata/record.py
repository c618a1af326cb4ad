r"""A ledger's metadata record, as BookKeeper keeps it in ZooKeeper (WIRE.md#metadata).

    "BookieMetadataFormatVersion\t3\n" | size of the message as varint | LedgerMetadataFormat

    1 write quorum  2 ensemble size  3 length  4 last entry id  5 state
    6 fragment (repeated): 1 bookie id (repeated) | 2 first entry id
    7 digest type  8 password  9 ack quorum  10 creation time in ms
    11 custom (repeated): 1 key | 2 value  12 token

Format 3 is written; 2 (the same message as text) and 1 (lines) are read too. A field of the
message that is unknown to this version is kept and written back; anything else unknown is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ledgerlog_spark.errors import (
    ConfigurationError,
    LocalProtocolError,
    MetadataFormatError,
    WireFormatError,
)
from ledgerlog_spark.model import NO_ENTRY, Fragment, LedgerMetadata
from ledgerlog_spark.wire.ledger_metadata.fields import LedgerFields
from ledgerlog_spark.wire.ledger_metadata.lines import decode_lines
from ledgerlog_spark.wire.ledger_metadata.text import as_binary
from ledgerlog_spark.wire.protobuf.binary import (
    Field,
    decode_varint,
    encode_bytes,
    encode_number,
    encode_varint,
    fields_of,
)

_HEADER: Final = b"BookieMetadataFormatVersion\t"


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The record in format 3, whatever format it was read in."""
    _check(metadata)
    message = b"".join(
        [
            encode_number(1, metadata.quorum.write_quorum),
            encode_number(2, metadata.quorum.ensemble_size),
            encode_number(3, metadata.length),
            encode_number(4, metadata.last_entry_id),
            encode_number(5, metadata.state),
            *(encode_bytes(6, _encode_fragment(fragment)) for fragment in metadata.fragments),
            *_encode_password(metadata),
            encode_number(9, metadata.quorum.ack_quorum),
            encode_number(10, metadata.created_ms) if metadata.created_ms >= 0 else b"",
            *(_encode_custom(key, metadata.custom[key]) for key in sorted(metadata.custom)),
            encode_number(12, metadata.token) if metadata.token is not None else b"",
            metadata.unknown_fields,
        ]
    )
    return _HEADER + b"3\n" + encode_varint(len(message)) + message


def decode_ledger_metadata(record: bytes) -> LedgerMetadata:
    """The metadata in a ledger's node."""
    try:
        version, body = _split_header(record)
        return _DECODERS[version](body).checked(version)
    except (WireFormatError, ConfigurationError) as cause:
        raise MetadataFormatError(f"ledger metadata cannot be read: {cause}") from cause


def _check(metadata: LedgerMetadata) -> None:
    fields = LedgerFields(
        write_quorum=metadata.quorum.write_quorum,
        ensemble_size=metadata.quorum.ensemble_size,
        length=metadata.length,
        last_entry_id=metadata.last_entry_id,
        state=metadata.state,
        fragments=list(metadata.fragments),
        ack_quorum=metadata.quorum.ack_quorum,
    )
    try:
        fields.checked(3)
    except WireFormatError as cause:
        raise LocalProtocolError(f"not a ledger's metadata: {cause}") from cause


def _split_header(record: bytes) -> tuple[int, bytes]:
    line, newline, body = record.partition(b"\n")
    for version in _DECODERS:
        if newline and line == _HEADER + b"%d" % version:
            return version, body
    raise WireFormatError(
        f"formats 1, 2 and 3 are known, the record begins with {record[:40]!r}; a newer ledgerlog "
        "may know it"
    )


def _encode_fragment(fragment: Fragment) -> bytes:
    members = b"".join(encode_bytes(1, bookie_id.encode()) for bookie_id in fragment.ensemble)
    return members + encode_number(2, fragment.first_entry_id)


def _encode_password(metadata: LedgerMetadata) -> list[bytes]:
    if not metadata.has_password:
        return []
    return [encode_number(7, metadata.digest_type), encode_bytes(8, metadata.password)]


def _encode_custom(key: str, value: bytes) -> bytes:
    return encode_bytes(11, encode_bytes(1, key.encode()) + encode_bytes(2, value))


def _decode_binary(body: bytes) -> LedgerFields:
    size, offset = decode_varint(body, 0)
    if size != len(body) - offset:
        raise WireFormatError(
            f"a message of {size} bytes is announced, {len(body) - offset} bytes follow"
        )
    return _decode_message(body[offset:])


def _decode_message(message: bytes) -> LedgerFields:
    fields = LedgerFields()
    unknown: list[bytes] = []
    for field in fields_of(message):
        setter = _SETTERS.get(field.number)
        if setter is None:
            unknown.append(field.raw)
        else:
            setter(fields, field)
    fields.unknown_fields = b"".join(unknown)
    return fields


def _set_numbers(fields: LedgerFields, field: Field) -> None:
    setattr(fields, _NUMBERS[field.number], field.as_int64())


def _set_fragment(fields: LedgerFields, field: Field) -> None:
    members: list[str] = []
    first_entry_id = NO_ENTRY
    for part in fields_of(field.as_bytes()):
        if part.number == 1:
            members.append(part.as_text())
        elif part.number == 2:  # noqa: PLR2004 - drawn above
            first_entry_id = part.as_int64()
        else:
            raise WireFormatError(f"a fragment with an unknown field {part.number}")
    fields.fragments.append(Fragment(first_entry_id, tuple(members)))


def _set_password(fields: LedgerFields, field: Field) -> None:
    fields.password = field.as_bytes()


def _set_custom(fields: LedgerFields, field: Field) -> None:
    key, value = "", b""
    for part in fields_of(field.as_bytes()):
        if part.number == 1:
            key = part.as_text()
        elif part.number == 2:  # noqa: PLR2004 - drawn above
            value = part.as_bytes()
        else:
            raise WireFormatError(f"custom metadata with an unknown field {part.number}")
    fields.custom[key] = value


_NUMBERS = {
    1: "write_quorum",
    2: "ensemble_size",
    3: "length",
    4: "last_entry_id",
    5: "state",
    7: "digest_type",
    9: "ack_quorum",
    10: "created_ms",
    12: "token",
}
_SETTERS: dict[int, Callable[[LedgerFields, Field], None]] = {
    **dict.fromkeys(_NUMBERS, _set_numbers),
    6: _set_fragment,
    8: _set_password,
    11: _set_custom,
}
_DECODERS: dict[int, Callable[[bytes], LedgerFields]] = {
    1: decode_lines,
    2: lambda body: _decode_message(as_binary(body)),
    3: _decode_binary,
}
