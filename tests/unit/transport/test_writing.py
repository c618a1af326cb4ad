"""Pieces are joined if asyncio's own `writelines` does not pause its protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.transport.v2 import sockets as writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PIECES: Sequence[bytes | bytearray | memoryview] = [b"one", bytearray(b"two"), memoryview(b"three")]


class OtherTransport(asyncio.WriteTransport):
    """A transport of any loop, which records the bytes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[bytes]]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(("write", [bytes(data)]))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.calls.append(("writelines", list(map(bytes, list_of_data))))


class AsyncioTransport(OtherTransport):
    """A transport that counts as one of asyncio's own loops."""

    __module__ = "asyncio.selector_events"


JOINED = [("write", [b"onetwothree"])]
IN_PIECES = [("writelines", [b"one", b"two", b"three"])]


@pytest.mark.parametrize(
    ("transport", "pauses", "calls"),
    [
        (AsyncioTransport(), False, JOINED),
        (AsyncioTransport(), True, IN_PIECES),
        (OtherTransport(), False, IN_PIECES),
        (OtherTransport(), True, IN_PIECES),
    ],
)
def test_pieces_are_joined_only_where_writelines_does_not_pause(
    *,
    transport: OtherTransport,
    pauses: bool,
    calls: list[tuple[str, list[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "PAUSES", pauses)
    writing.write_all(transport, PIECES)
    assert transport.calls == calls
