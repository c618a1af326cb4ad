"""A bookie's registration record, BookKeeper's `BookieServiceInfoFormat` (WIRE.md#znodes).

    6 endpoint (repeated): 1 id | 2 port | 3 host | 4 protocol | 5 auth | 6 extensions
    7 property (repeated): 1 key | 2 value

The endpoint with protocol `bookie-rpc` supports v2. A ledgerlog bookie also has an endpoint with
protocol `grpc`. If the node has no data, the bookie id is the address of the bookie. Fields that
are not listed here are ignored when a record is read. They are never written back, because only the
bookie itself writes its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.wire.protobuf.binary import Field, encode_bytes, encode_number, fields_of

OPERATIONS_PROPERTY: Final = "ledgerlog.ops"
RACK_PROPERTY: Final = "ledgerlog.rack"
REGION_PROPERTY: Final = "ledgerlog.region"
FREE_BYTES_PROPERTY: Final = "ledgerlog.free_bytes"
OPERATIONS: Final = ("ADD_RUN/1", "TELL_LAC/1", "READ_SLICES/1")
"""Operations that ledgerlog's bookies support, but Apache's bookies do not."""
_BOOKIE_PROTOCOL = "bookie-rpc"
_GRPC_PROTOCOL = "grpc"
_PORT_MAX = 65_535


def registered_properties(rack: str | None = None, region: str | None = None) -> dict[str, str]:
    """Return the properties in the registration of a ledgerlog bookie in this rack and region."""
    places = {RACK_PROPERTY: rack, REGION_PROPERTY: region}
    known = {key: value for key, value in places.items() if value is not None}
    return {OPERATIONS_PROPERTY: ",".join(OPERATIONS), **known}


class _Endpoint(NamedTuple):
    protocol: str
    host: str
    port: int


def encode_service_info(info: BookieInfo) -> bytes:
    """Return the data of a bookie's registration node."""
    record = _encode_endpoint("bookie", info.host, info.port, _BOOKIE_PROTOCOL)
    if info.grpc_port is not None:
        record += _encode_endpoint("grpc", info.host, info.grpc_port, _GRPC_PROTOCOL)
    for key, value in sorted(info.properties.items()):
        record += encode_bytes(7, encode_bytes(1, key.encode()) + encode_bytes(2, value.encode()))
    return record


def decode_service_info(bookie_id: str, data: bytes) -> BookieInfo:
    """Return the address and properties of a bookie. `data` is from its registration node."""
    if not data:
        return _info_of_address(bookie_id)
    endpoints: dict[str, _Endpoint] = {}
    properties: dict[str, str] = {}
    for field in fields_of(data):
        if field.number == 6:  # noqa: PLR2004 - drawn above
            endpoint = _decode_endpoint(field.as_bytes())
            endpoints.setdefault(endpoint.protocol, endpoint)
        elif field.number == 7:  # noqa: PLR2004 - drawn above
            key, value = _decode_property(field.as_bytes())
            properties[key] = value
    bookie = endpoints.get(_BOOKIE_PROTOCOL)
    if bookie is None or not bookie.host or not 0 < bookie.port <= _PORT_MAX:
        raise WireFormatError(
            f"bookie {bookie_id} registered without a usable {_BOOKIE_PROTOCOL} endpoint",
            bookie_id=bookie_id,
        )
    control = endpoints.get(_GRPC_PROTOCOL)
    return BookieInfo(
        bookie_id=bookie_id,
        host=bookie.host,
        port=bookie.port,
        grpc_port=control.port if control and 0 < control.port <= _PORT_MAX else None,
        properties=properties,
    )


def _info_of_address(bookie_id: str) -> BookieInfo:
    host, _, port = bookie_id.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX))
    if not host or not is_port or not 0 < int(port) <= _PORT_MAX:
        raise WireFormatError(
            f"bookie {bookie_id} registered without a record, and its id is not host:port",
            bookie_id=bookie_id,
        )
    return BookieInfo(bookie_id=bookie_id, host=host, port=int(port))


def _encode_endpoint(endpoint_id: str, host: str, port: int, protocol: str) -> bytes:
    return encode_bytes(
        6,
        encode_bytes(1, endpoint_id.encode())
        + encode_number(2, port)
        + encode_bytes(3, host.encode())
        + encode_bytes(4, protocol.encode()),
    )


def _decode_endpoint(message: bytes) -> _Endpoint:
    fields = {field.number: field for field in fields_of(message)}
    port = fields[2].as_int64() if 2 in fields else 0  # noqa: PLR2004 - drawn above
    return _Endpoint(_text(fields, 4), _text(fields, 3), port)


def _decode_property(message: bytes) -> tuple[str, str]:
    fields = {field.number: field for field in fields_of(message)}
    return _text(fields, 1), _text(fields, 2)


def _text(fields: Mapping[int, Field], number: int) -> str:
    return fields[number].as_text() if number in fields else ""
