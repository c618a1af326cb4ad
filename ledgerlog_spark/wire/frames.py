"""Cuts a byte stream into frames (docs/WIRE.md, Frames).

    frame = length i32, big-endian, of the body that follows | body

The limit of a frame's size counts its length field too, as Apache's does.
"""

from __future__ import annotations

import sys
from collections import deque
from struct import Struct
from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

_LENGTH = Struct(">i")
_BODY_SIZE_BYTES_MIN = 4
_CHUNK_SIZE_BYTES_MIN = 1 << 14
_CHUNK_SIZE_BYTES_MAX = 1 << 18
_CHUNK_SIZE_BYTES_LARGE = 1 << 22
_POOL_SIZE_BYTES_OF_ONE = 1 << 23
_SPACE_BYTES_MIN = 1 << 12
_UNCUT_SIZE_BYTES_MIN = 1 << 14
"""From this size on, one more call to receive is cheaper than to copy half a frame."""

ENTRY_SIZE_BYTES_MAX: Final = 5 * 1024 * 1024 - 128
"""Stored bytes (header, digest, payload) of the largest entry that fits every kind of frame, an
Apache bookie's default limit of 5 MiB included."""


def _references_when_unshared() -> int:
    probe = _Chunk()
    return sys.getrefcount(probe.buffer)


class _Chunk:
    __slots__ = ("buffer",)

    def __init__(self, size_bytes: int = 0) -> None:
        self.buffer = bytearray(size_bytes)

    def is_shared(self) -> bool:
        return sys.getrefcount(self.buffer) > _REFERENCES_WHEN_UNSHARED


_REFERENCES_WHEN_UNSHARED = _references_when_unshared()


class ChunkPool:
    """Memory to receive into, used again once no view of it is left.

    Fresh memory costs more than the bytes that arrive in it: its pages are mapped and zeroed one
    by one (measured: 47 of 57 us for a frame of 64 KiB). Chunks come back while views of them are
    still out, and the one that came back first is looked at first. Sizes are powers of
    two. One pool serves many splitters, all of one thread.

    Args:
        size_bytes_max: Kept at most, in all; what is beyond goes when its last view does.
    """

    __slots__ = ("_chunks", "_size_bytes", "_size_bytes_max")

    def __init__(self, size_bytes_max: int = 32 << 20) -> None:
        self._chunks: dict[int, deque[_Chunk]] = {}
        self._size_bytes = 0
        self._size_bytes_max = size_bytes_max

    def take(self, size_bytes: int) -> _Chunk:
        """A chunk of at least `size_bytes`."""
        size_bytes = 1 << (size_bytes - 1).bit_length()
        chunks = self._chunks.get(size_bytes)
        if chunks and not chunks[0].is_shared():
            self._size_bytes -= size_bytes
            return chunks.popleft()
        return _Chunk(size_bytes)

    def give_back(self, chunk: _Chunk) -> None:
        """Take a chunk in; views of it may still be out."""
        size_bytes = len(chunk.buffer)
        if not size_bytes:
            return
        while self._size_bytes + size_bytes > self._size_bytes_max and self._drop_one():
            pass
        self._chunks.setdefault(size_bytes, deque()).append(chunk)
        self._size_bytes += size_bytes

    def _drop_one(self) -> bool:
        for size_bytes, chunks in self._chunks.items():
            if chunks:
                chunks.popleft()
                self._size_bytes -= size_bytes
                return True
        return False


class FrameSplitter:
    """Receives into its own memory and hands out the bodies of complete frames as views of it.

    A body stays valid for as long as somebody holds it: memory is received into again only when
    no view of it is left. What is held back is one incomplete frame, at most `frame_size_max`
    bytes. A small frame that lies across two chunks is copied once, up to where it was cut; the
    memory handed out ends with a large one behind which no other would fit.

    Use: `n = receive_into(splitter.get_buffer())`, then `for body in splitter.received(n)`.
    """

    __slots__ = (
        "_chunk",
        "_chunk_size_bytes",
        "_end",
        "_expected_size_bytes",
        "_frame_size_max",
        "_pool",
        "_start",
    )

    def __init__(
        self, frame_size_max: int = FRAME_SIZE_BYTES_MAX, pool: ChunkPool | None = None
    ) -> None:
        self._pool = pool or ChunkPool(_POOL_SIZE_BYTES_OF_ONE)
        self._frame_size_max = frame_size_max
        self._chunk_size_bytes = _CHUNK_SIZE_BYTES_MIN
        self._expected_size_bytes = (
            _SPACE_BYTES_MIN  # of the next frame: that of the last large one
        )
        self._chunk = _Chunk()
        self._start = 0  # of the incomplete frame
        self._end = 0  # of what was received

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame that wait for the rest of it."""
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Memory to receive into; never empty, and valid until the next call of `received`."""
        held = self._end - self._start
        wanted = held + self._expected_size_bytes
        is_large = False
        if held >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._chunk.buffer, self._start)
            wanted = min(_LENGTH.size + length, self._frame_size_max)
            is_large = wanted >= _UNCUT_SIZE_BYTES_MIN
        if held == 0 and self._start and not self._chunk.is_shared():
            self._start = self._end = 0
        if self._start + wanted > len(self._chunk.buffer):
            self._move(held, wanted)
        frame_end = self._start + wanted
        if is_large and frame_end + wanted > len(self._chunk.buffer):
            return memoryview(self._chunk.buffer)[self._end : frame_end]
        return memoryview(self._chunk.buffer)[self._end :]

    def _move(self, held: int, wanted: int) -> None:
        if wanted > self._chunk_size_bytes:
            # Of a chunk with room for one frame only, half of every frame is copied to the next.
            wanted = max(wanted, min(2 * wanted, _CHUNK_SIZE_BYTES_LARGE))
        chunk = self._pool.take(max(wanted, self._chunk_size_bytes))
        if held:
            chunk.buffer[:held] = memoryview(self._chunk.buffer)[self._start : self._end]
        self._pool.give_back(self._chunk)
        self._chunk, self._start, self._end = chunk, 0, held

    def received(self, size_bytes: int) -> list[memoryview]:
        """Bodies of the frames that `size_bytes` more bytes in the buffer have completed.

        Raises:
            WireFormatError: A length that no frame has, before memory is set aside for it. The
                stream has lost its frames for good: close it.
        """
        start, end = self._start, self._end + size_bytes
        buffer = self._chunk.buffer
        if end == len(buffer) and self._chunk_size_bytes < _CHUNK_SIZE_BYTES_MAX:
            self._chunk_size_bytes *= 2  # the sender fills what it is given
        self._end = end
        view = memoryview(buffer)
        bodies: list[memoryview] = []
        unpack, length_max = _LENGTH.unpack_from, self._frame_size_max - _LENGTH.size
        while end - start >= _LENGTH.size:
            (length,) = unpack(buffer, start)
            if not _BODY_SIZE_BYTES_MIN <= length <= length_max:
                raise WireFormatError(
                    f"a frame of {length} bytes: allowed are {_BODY_SIZE_BYTES_MIN} to "
                    f"{length_max}",
                    size_bytes=length,
                )
            body_start = start + _LENGTH.size
            if end - body_start < length:
                break
            start = body_start + length
            bodies.append(view[body_start:start])
        self._start = start
        if bodies:
            size_bytes = len(bodies[-1]) + _LENGTH.size
            is_large = size_bytes >= _UNCUT_SIZE_BYTES_MIN
            self._expected_size_bytes = size_bytes if is_large else _SPACE_BYTES_MIN
        return bodies
