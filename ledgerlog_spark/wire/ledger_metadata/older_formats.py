r"""Converts formats 1 and 2 of the ledger metadata record to the binary message of format 3.

These formats are never written. A record in format 1 has no digest type, and its ack quorum is the
write quorum.

    write quorum \n ensemble size \n length \n
    { first entry id \t bookie id \t bookie id ... \n } *
    [ last entry id \t "CLOSED" ]        last entry id -102: in recovery

All functions take the record without its version line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import DigestType, LedgerState
from ledgerlog_spark.wire.protobuf.binary import encode_bytes, encode_number
from ledgerlog_spark.wire.protobuf.text import TextMessage, Value, parse

_IN_RECOVERY: Final = -102
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER_LINES: Final = 3
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


def message_of_text(body: bytes) -> bytes:
    """Convert a record in format 2, which is the same message as text, to the binary message."""
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
    return _encoded_number(numbers[name], value)


def _encoded_number(number: int, value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise WireFormatError(f"field {number} is not a number of 64 bits: {value}", field=number)
    return encode_number(number, value)


def message_of_lines(body: bytes) -> bytes:
    """Convert a record in format 1 to the binary message."""
    try:
        lines = body.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as cause:
        raise WireFormatError("a record in format 1 is not UTF-8 text") from cause
    if len(lines) < _NUMBER_LINES:
        raise WireFormatError("it ends before its three sizes are complete")
    encoded = [_encoded_line(number, line) for number, line in enumerate(lines[:_NUMBER_LINES], 1)]
    state = LedgerState.OPEN
    for place, line in enumerate(lines[_NUMBER_LINES:], _NUMBER_LINES + 1):
        first, *rest = line.split("\t")
        if rest != ["CLOSED"]:
            members = b"".join(encode_bytes(1, bookie_id.encode()) for bookie_id in rest)
            encoded.append(encode_bytes(6, members + _encoded_line(2, first)))
            continue
        if place != len(lines):
            raise WireFormatError("lines follow the last entry id")
        last = _encoded_line(4, first)
        if int(first) == _IN_RECOVERY:
            state = LedgerState.IN_RECOVERY
        else:
            state = LedgerState.CLOSED
            encoded.append(last)
    return b"".join((*encoded, encode_number(5, state)))


def _encoded_line(number: int, text: str) -> bytes:
    if _NUMBER.fullmatch(text) is None:
        raise WireFormatError(f"{text[:40]!r} is not a number")
    return _encoded_number(number, int(text))
