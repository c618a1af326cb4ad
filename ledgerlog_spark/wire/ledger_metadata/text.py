"""Format 2 of the ledger metadata record: the message of format 3 as protobuf text. Read only."""

from __future__ import annotations

from enum import IntEnum

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import NO_ENTRY, DigestType, Fragment, LedgerState
from ledgerlog_spark.wire.ledger_metadata.fields import LedgerFields
from ledgerlog_spark.wire.protobuf.text import TextMessage, Value, parse

_NUMBERS = {
    "quorumSize": "write_quorum",
    "ensembleSize": "ensemble_size",
    "length": "length",
    "lastEntryId": "last_entry_id",
    "ackQuorumSize": "ack_quorum",
    "ctime": "created_ms",
    "cToken": "token",
}
_STATES: dict[str, IntEnum] = {state.name: state for state in LedgerState}
_DIGESTS: dict[str, IntEnum] = {digest.name: digest for digest in DigestType}


def decode_text(body: bytes) -> LedgerFields:
    """The fields of a record in format 2, its version line taken off."""
    message = parse(body)
    fields = LedgerFields()
    seen: list[str] = []
    for name, value in message.values:
        if name in seen:
            raise WireFormatError(f"{name} occurs twice", field=name)
        seen.append(name)
        _set(fields, name, value)
    for name, part in message.messages:
        if name == "segment":
            fields.fragments.append(_fragment(part))
        elif name == "customMetadata":
            key, value = _custom(part)
            fields.custom[key] = value
        else:
            raise WireFormatError(f"unknown part {name}", field=name)
    return fields


def _set(fields: LedgerFields, name: str, value: Value) -> None:
    if name in _NUMBERS:
        setattr(fields, _NUMBERS[name], _number(name, value))
    elif name == "state":
        fields.state = _member(name, value, _STATES)
    elif name == "digestType":
        fields.digest_type = _member(name, value, _DIGESTS)
    elif name == "password" and isinstance(value, bytes):
        fields.password = value
    else:
        raise WireFormatError(f"unknown field {name}", field=name)


def _fragment(message: TextMessage) -> Fragment:
    members: list[str] = []
    first_entry_id = NO_ENTRY
    for name, value in message.values:
        if name == "ensembleMember":
            members.append(_text(name, value))
        elif name == "firstEntryId":
            first_entry_id = _number(name, value)
        else:
            raise WireFormatError(f"a segment with an unknown field {name}", field=name)
    if message.messages:
        raise WireFormatError("a segment with a message in it")
    return Fragment(first_entry_id, tuple(members))


def _custom(message: TextMessage) -> tuple[str, bytes]:
    found: dict[str, bytes] = {"key": b"", "value": b""}
    for name, value in message.values:
        if name not in found or not isinstance(value, bytes):
            raise WireFormatError(f"custom metadata with an unknown field {name}", field=name)
        found[name] = value
    if message.messages:
        raise WireFormatError("custom metadata with a message in it")
    return _text("key", found["key"]), found["value"]


def _number(name: str, value: Value) -> int:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise WireFormatError(f"{name} is not a number of 64 bits: {value!r}", field=name)
    return value


def _member(name: str, value: Value, members: dict[str, IntEnum]) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value in members:
        return members[value]
    raise WireFormatError(f"{name} cannot be {value!r}", field=name)


def _text(name: str, value: Value) -> str:
    if not isinstance(value, bytes):
        raise WireFormatError(f"{name} is not a string: {value!r}", field=name)
    try:
        return value.decode()
    except UnicodeDecodeError as cause:
        raise WireFormatError(f"{name} is not UTF-8 text", field=name) from cause
