"""Checks appended payloads, and copies payloads whose bytes may still change."""

from __future__ import annotations

from collections.abc import Iterable

from ledgerlog_spark.client.arguments import check_iterable
from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.protocol.ledger.messages import Payload


def checked_payloads(payloads: Iterable[object], *, what: str = "an entry") -> list[Payload]:
    """Check several payloads, and return them with bytes that do not change.

    `checked_payload` describes the checks.
    """
    check_several(payloads, what)
    return [checked_payload(payload, what=what) for payload in payloads]


def check_several(payloads: object, what: str, argument: str = "payloads") -> None:
    """Raise an error if `payloads` is not iterable, or is a single payload."""
    check_iterable(argument, payloads)
    if isinstance(payloads, bytes | bytearray | memoryview):
        raise LocalProtocolError(
            f"expected a list, got {type(payloads).__name__}, which is {what} by itself: put it "
            "into a list, or use append",
            type=type(payloads).__name__,
        )


def checked_payload(
    payload: object, *, what: str = "an entry", size_bytes_max: int = PAYLOAD_SIZE_BYTES_MAX
) -> Payload:
    """Return `bytes` and read-only views unchanged, and a copy of any other buffer of bytes.

    A value of another type or of more than `size_bytes_max` bytes raises an error. `what` is the
    name of the payload in messages.
    """
    kept: Payload
    if type(payload) is bytes and len(payload) <= size_bytes_max:
        return payload
    if isinstance(payload, memoryview) and payload.readonly and payload.contiguous:
        kept = payload if payload.format == "B" and payload.ndim == 1 else payload.cast("B")
    elif isinstance(payload, bytes | bytearray | memoryview):
        kept = bytes(payload)
    else:
        raise LocalProtocolError(
            f"{what} must be bytes, a bytearray or a memoryview, got {type(payload).__name__}: "
            "encode the text first",
            type=type(payload).__name__,
        )
    if len(kept) > size_bytes_max:
        raise LocalProtocolError(
            f"{what} has {len(kept)} bytes, but the maximum is {size_bytes_max}: split it",
            size_bytes=len(kept),
            size_bytes_max=size_bytes_max,
        )
    return kept
