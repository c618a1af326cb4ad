"""Recognises and refuses requests of Apache BookKeeper's protocol version 3 (not supported).

A version 3 frame is a protobuf Request. Its field 1 is a BKPacketHeader with the fields 1 version,
2 operation and 3 transaction id. The refusal is a Response with the same header, and with a status
in field 2 (WIRE.md#version-3). A request other than an add is refused with the status EBADVERSION,
and the client ends the request immediately. If an add were refused with this status, the client
would replace the bookie and send the add again, until no other bookie is left. So an add is refused
with the status EUA (unauthorized), and the client ends the add immediately.
"""

from __future__ import annotations

from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.protobuf.binary import encode_bytes, encode_number, fields_of

FIRST_BYTE: Final = 0x0A
"""First byte of the body of a version 3 frame. In version 2, this byte is the version, 1 or 2."""

_HEADER: Final = 1
_STATUS: Final = 2
_VERSION: Final = 1
_OPERATION: Final = 2
_TRANSACTION: Final = 3
_VERSION_THREE: Final = 3
_ADD_ENTRY: Final = 2
_UNAUTHORIZED: Final = 502
_BAD_VERSION: Final = 503
_HEADER_SIZE_BYTES_MAX: Final = 64
_HEADER_OFFSET: Final = 2


def refusal_of_version_3(body: memoryview) -> bytes | None:
    """Return the frame that refuses the request `body`; None if `body` is not of version 3."""
    if (
        len(body) <= _HEADER_OFFSET
        or body[0] != FIRST_BYTE
        or not 0 < body[1] <= _HEADER_SIZE_BYTES_MAX
        or len(body) < _HEADER_OFFSET + body[1]
    ):
        return None
    header = bytes(body[_HEADER_OFFSET : _HEADER_OFFSET + body[1]])
    try:
        fields = {field.number: field.value for field in fields_of(header)}
    except WireFormatError:
        return None
    if fields.get(_VERSION) != _VERSION_THREE or not {_OPERATION, _TRANSACTION} <= fields.keys():
        return None
    status = _UNAUTHORIZED if fields[_OPERATION] == _ADD_ENTRY else _BAD_VERSION
    answer = encode_bytes(_HEADER, header) + encode_number(_STATUS, status)
    return len(answer).to_bytes(4, "big") + answer
