"""Appends to the control service in requests that are small, whatever the size of their entries.

A gRPC library receives a request as a whole before it can be counted. So a bookie takes only
small ones, and a large body is sent in parts, which are counted before they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgerlog_spark.transport import control_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST_SIZE_BYTES_MAX: Final = 65_536
"""Maximum size of a message that a bookie receives; ids and lengths of a run take at most 53,248
bytes of it."""

PART_SIZE_BYTES: Final = 49_152
PART_SIZE_BYTES_MIN: Final = 16_384
"""Minimum size of a part of a body, except the first and the last one."""

_HEAD_SIZE_BYTES: Final = 64
"""What the field `more_size_bytes` and the sizes of fields add to a request, at most."""


def in_parts(request: pb.AppendRequest) -> Iterator[pb.AppendRequest]:
    """Yield the requests with the same contents, each within `REQUEST_SIZE_BYTES_MAX`."""
    if request.ByteSize() <= REQUEST_SIZE_BYTES_MAX:
        yield request
        return
    body = request.body
    first = pb.AppendRequest()
    first.CopyFrom(request)
    first.body = b""
    end = REQUEST_SIZE_BYTES_MAX - _HEAD_SIZE_BYTES - first.ByteSize()
    first.body = body[:end]
    first.more_size_bytes = len(body) - end
    yield first
    for begin in range(end, len(body), PART_SIZE_BYTES):
        part = body[begin : begin + PART_SIZE_BYTES]
        yield pb.AppendRequest(request_id=request.request_id, body=part)
