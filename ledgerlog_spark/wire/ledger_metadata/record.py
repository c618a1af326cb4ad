r"""A ledger's metadata record, as BookKeeper stores it in ZooKeeper (WIRE.md#metadata).

    "BookieMetadataFormatVersion\t3\n" | size of the message as varint | LedgerMetadataFormat

    1 write quorum  2 ensemble size  3 length  4 last entry id  5 state
    6 fragment (repeated): 1 bookie id (repeated) | 2 first entry id
    7 digest type  8 password  9 ack quorum  10 creation time in ms
    11 custom (repeated): 1 key | 2 value  12 token

Records are written in format 3. Records in format 2 (the same message as text) and format 1 (lines)
can also be read. An unknown field of the message is kept, and is written back with the record. All
other unknown parts of a record are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Final, TypeVar

from ledgerlog_spark.errors import (
    ConfigurationError,
    LocalProtocolError,
    MetadataFormatError,
    WireFormatError,
)
from ledgerlog_spark.model import (
    NO_ENTRY,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
)
from ledgerlog_spark.wire.ledger_metadata.older_formats import message_of_lines, message_of_text
from ledgerlog_spark.wire.protobuf.binary import (
    decode_varint,
    encode_bytes,
    encode_number,
    encode_varint,
    fields_of,
)

_HEADER: Final = b"BookieMetadataFormatVersion\t"
E = TypeVar("E", bound=IntEnum)


@dataclass(slots=True)
class _LedgerFields:
    """The fields of a record before they are checked. A missing field is None."""

    write_quorum: int | None = None
    ensemble_size: int | None = None
    length: int | None = None
    last_entry_id: int | None = None
    state: int | None = None
    fragments: list[Fragment] = field(default_factory=list)
    digest_type: int | None = None
    password: bytes | None = None
    ack_quorum: int | None = None  # if it is missing, the ack quorum is the write quorum
    created_ms: int | None = None
    custom: dict[str, bytes] = field(default_factory=dict)
    token: int | None = None
    unknown_fields: bytes = b""  # tags and values, as in a message of format 3

    def checked(self, format_version: int) -> LedgerMetadata:
        """Check the fields, and return the metadata that they describe."""
        if self.write_quorum is None or self.ensemble_size is None:
            raise WireFormatError("the ensemble size or the write quorum is missing")
        ack_quorum = self.write_quorum if self.ack_quorum is None else self.ack_quorum
        quorum = Quorum(self.ensemble_size, self.write_quorum, ack_quorum)
        self._check_fragments(self.ensemble_size)
        state = _member_of(LedgerState, "ledger state", self.state)
        last_entry_id, length = self._end(state)
        digest_type = DigestType.CRC32C
        if self.digest_type is not None:
            digest_type = _member_of(DigestType, "digest type", self.digest_type)
        return LedgerMetadata(
            quorum=quorum,
            fragments=tuple(self.fragments),
            state=state,
            last_entry_id=last_entry_id,
            length=length,
            digest_type=digest_type,
            password=self.password or b"",
            has_password=self.password is not None,
            created_ms=-1 if self.created_ms is None else self.created_ms,
            custom=self.custom,
            token=self.token,
            format_version=format_version,
            unknown_fields=self.unknown_fields,
        )

    def _check_fragments(self, ensemble_size: int) -> None:
        firsts = [fragment.first_entry_id for fragment in self.fragments]
        if firsts[:1] != [0] or any(first >= after for first, after in pairwise(firsts)):
            raise WireFormatError(f"the fragments begin at {firsts}, but must begin at 0 and rise")
        for fragment in self.fragments:
            if len(fragment.ensemble) != ensemble_size or not all(fragment.ensemble):
                raise WireFormatError(
                    f"the ensemble from entry {fragment.first_entry_id} does not have "
                    f"{ensemble_size} bookies"
                )

    def _end(self, state: LedgerState) -> tuple[int, int]:
        # Only a closed ledger has a last entry and a length. For other ledgers, Apache writes the
        # length 0 and the last entry -1, and does not read these fields.
        if state is not LedgerState.CLOSED:
            return NO_ENTRY, 0
        last_entry_id, length = self.last_entry_id, self.length
        if last_entry_id is None or length is None or last_entry_id < NO_ENTRY or length < 0:
            raise WireFormatError(
                f"a ledger cannot be closed at entry {last_entry_id} with {length} bytes"
            )
        return last_entry_id, length


def _member_of(kind: type[E], what: str, number: int | None) -> E:
    for member in kind:
        if member == number:
            return member
    raise WireFormatError(f"unknown {what} {number}")


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the record of `metadata` in format 3, even if it was read in another format."""
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
    """Return the metadata in `record`, the data of a ledger's node."""
    try:
        version, body = _split_header(record)
        return _decode_message(_MESSAGES[version](body)).checked(version)
    except (WireFormatError, ConfigurationError) as cause:
        raise MetadataFormatError(f"ledger metadata cannot be read: {cause}") from cause


def _check(metadata: LedgerMetadata) -> None:
    fields = _LedgerFields(
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
    for version in _MESSAGES:
        if newline and line == _HEADER + b"%d" % version:
            return version, body
    raise WireFormatError(
        f"the record begins with {record[:40]!r}, but only formats 1, 2 and 3 can be read; a newer "
        "ledgerlog may be able to read it"
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


def _message_of_binary(body: bytes) -> bytes:
    size, offset = decode_varint(body, 0)
    if size != len(body) - offset:
        raise WireFormatError(
            f"a message of {size} bytes is announced, but {len(body) - offset} bytes follow"
        )
    return body[offset:]


def _decode_message(message: bytes) -> _LedgerFields:
    fields = _LedgerFields()
    unknown: list[bytes] = []
    for part in fields_of(message):
        match part.number:
            case 6:
                fields.fragments.append(_decode_fragment(part.as_bytes()))
            case 8:
                fields.password = part.as_bytes()
            case 11:
                key, value = _decode_custom(part.as_bytes())
                fields.custom[key] = value
            case number if number in _NUMBERS:
                setattr(fields, _NUMBERS[number], part.as_int64())
            case _:
                unknown.append(part.raw)
    fields.unknown_fields = b"".join(unknown)
    return fields


def _decode_fragment(message: bytes) -> Fragment:
    members: list[str] = []
    first_entry_id = NO_ENTRY
    for part in fields_of(message):
        match part.number:
            case 1:
                members.append(part.as_text())
            case 2:
                first_entry_id = part.as_int64()
            case _:
                raise WireFormatError(f"a fragment has the unknown field {part.number}")
    return Fragment(first_entry_id, tuple(members))


def _decode_custom(message: bytes) -> tuple[str, bytes]:
    key, value = "", b""
    for part in fields_of(message):
        match part.number:
            case 1:
                key = part.as_text()
            case 2:
                value = part.as_bytes()
            case _:
                raise WireFormatError(f"custom metadata has the unknown field {part.number}")
    return key, value


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
_MESSAGES: dict[int, Callable[[bytes], bytes]] = {
    1: message_of_lines,
    2: message_of_text,
    3: _message_of_binary,
}
