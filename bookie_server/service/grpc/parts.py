"""Puts appends together whose bodies come in parts (`more_size_bytes` of control.proto)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, RUN_ENTRIES_MAX
from ledgerlog_spark.transport.grpc.append_parts import PART_SIZE_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledgerlog_spark.transport import control_pb2 as pb


class BadStreamError(Exception):
    """A stream whose requests cannot be told from each other, or do not come: its call ends.

    Attributes:
        is_late: Whether something did not come in time.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


def size_bytes_of(request: pb.AppendRequest) -> int:
    """Of the body of an append, the parts that have not come included.

    Raises:
        BadStreamError: It is larger than any, or has more ids than any: nobody waits for it.
    """
    if max(len(request.entry_ids), len(request.lengths)) > RUN_ENTRIES_MAX:
        # Of what is parsed these are many times as large as on the wire.
        raise BadStreamError(f"a run has {RUN_ENTRIES_MAX} entries at most")
    size_bytes = len(request.body) + request.more_size_bytes
    if size_bytes > FRAME_SIZE_BYTES_MAX:
        raise BadStreamError(
            f"a run of {size_bytes} bytes is larger than any ({FRAME_SIZE_BYTES_MAX})"
        )
    return size_bytes


async def complete(request: pb.AppendRequest, parts: AsyncIterator[pb.AppendRequest]) -> None:
    """Put the parts of its body that come after it into a request.

    Raises:
        BadStreamError: Something else came.
    """
    missing = request.more_size_bytes
    if not missing:
        return
    body = [request.body]
    while missing:
        part = await anext(parts)
        size_bytes = len(part.body)
        if (
            part.request_id != request.request_id
            or size_bytes > missing
            or size_bytes < min(missing, PART_SIZE_BYTES_MIN)
        ):
            raise BadStreamError(
                f"of request {request.request_id}, {missing} bytes were to come, in parts of "
                f"{PART_SIZE_BYTES_MIN} at least; got {size_bytes} of request {part.request_id}"
            )
        body.append(part.body)
        missing -= size_bytes
    request.body = b"".join(body)
    request.more_size_bytes = 0
