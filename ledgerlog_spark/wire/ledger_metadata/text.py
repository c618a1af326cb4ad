"""Format 2 of the ledger metadata record: the message of format 3 as protobuf text. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import DigestType, LedgerState
from ledgerlog_spark.wire.protobuf.binary import encode_bytes, encode_number
from ledgerlog_spark.wire.protobuf.text import TextMessage, Value, parse

_NUMBERS: Final = {
    "quorumSize": 1,
    "ensembleSize": 2,
    "length": 3,
    "lastEntryId": 4,
    "state": 5,
    "segment": 6,
    "digestType": 7,
    "password": 8,
    "ackQuorumSize": 9,
    "ctime": 10,
    "customMetadata": 11,
    "cToken": 12,
}
_PARTS: Final = {
    "segment": {"ensembleMember": 1, "firstEntryId": 2},
    "customMetadata": {"key": 1, "value": 2},
}
_MEMBERS: Final[Mapping[str, type[IntEnum]]] = {"state": LedgerState, "digestType": DigestType}


def as_binary(body: bytes) -> bytes:
    """The message of a record in format 2, its version line taken off, in binary."""
    message = parse(body)
    names = [name for name, _ in message.values]
    if len(set(names)) < len(names):
        raise WireFormatError(f"a field occurs twice: {names}")
    return _encoded(message, _NUMBERS)


def _encoded(message: TextMessage, numbers: Mapping[str, int]) -> bytes:
    encoded = [_encoded_value(name, value, numbers) for name, value in message.values]
    for name, part in message.messages:
        if name not in numbers or name not in _PARTS:
            raise WireFormatError(f"unknown part {name}", field=name)
        encoded.append(encode_bytes(numbers[name], _encoded(part, _PARTS[name])))
    return b"".join(encoded)


def _encoded_value(name: str, value: Value, numbers: Mapping[str, int]) -> bytes:
    if name not in numbers:
        raise WireFormatError(f"unknown field {name}", field=name)
    if isinstance(value, bytes):
        return encode_bytes(numbers[name], value)
    if isinstance(value, str):
        members = _MEMBERS[name].__members__ if name in _MEMBERS else {}
        if value not in members:
            raise WireFormatError(f"{name} cannot be {value!r}", field=name)
        value = members[value]
    if not -(1 << 63) <= value < 1 << 63:
        raise WireFormatError(f"{name} is not a number of 64 bits: {value!r}", field=name)
    return encode_number(numbers[name], value)
