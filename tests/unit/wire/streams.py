"""Passes bytes to a splitter in pieces, as a socket would."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerlog_spark.wire.frames import FrameSplitter


def fed(splitter: FrameSplitter, data: bytes, piece_size_bytes: int = 1 << 20) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while offset < len(data):
        buffer = splitter.get_buffer()
        size = min(len(buffer), piece_size_bytes, len(data) - offset)
        buffer[:size] = data[offset : offset + size]
        del buffer
        offset += size
        bodies += [bytes(body) for body in splitter.received(size)]
    return bodies
