"""Divides appends to the control service into small requests, even if their entries are large.

The gRPC library of a bookie receives a whole request before the bookie can count the memory of the
request. So a bookie accepts only small requests. A large body is sent in parts. When the first part
arrives, the bookie counts the size of the whole body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledgerlog_spark.transport import control_pb2 as pb

REQUEST_SIZE_BYTES_MAX: Final = 65_536
"""Maximum size of a message that a bookie receives. The ids and lengths of a run take at most
53,248 bytes of this size."""

PART_SIZE_BYTES: Final = 49_152
PART_SIZE_BYTES_MIN: Final = 16_384
"""Minimum size of each part of a body except the first and the last part."""

_HEAD_SIZE_BYTES: Final = 64
"""Maximum number of bytes that `more_size_bytes` and the sizes of fields add to a request."""


def in_parts(request: pb.AppendRequest) -> Iterator[pb.AppendRequest]:
    """Divide a request into requests of at most `REQUEST_SIZE_BYTES_MAX`, and yield the parts."""
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
