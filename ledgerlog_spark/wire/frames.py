"""Cuts a byte stream into frames (WIRE.md#frames).

    frame = length i32, big-endian, of the body that follows | body

The maximum size of a frame includes its length field, as in Apache BookKeeper.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

_LENGTH = Struct(">i")
_BODY_SIZE_BYTES_MIN = 4
_CHUNK_SIZE_BYTES_MIN = 1 << 14
_CHUNK_SIZE_BYTES_MAX = 1 << 18
_CHUNK_SIZE_BYTES_LARGE = 1 << 22
_CHUNK_UNIT_BYTES = 1 << 12
_POOL_SIZE_BYTES_OF_ONE = 1 << 23
_SPACE_BYTES_MIN = 1 << 12
_SPACE_BYTES_LEAST = 1 << 8
"""Minimum number of free bytes at the end of a chunk. If no new memory is available, a chunk with
at least this number of free bytes is still used."""
_UNCUT_SIZE_BYTES_MIN = 1 << 14
"""Minimum size of a frame for which one more call to receive takes less time than a copy of half
the frame."""

ENTRY_SIZE_BYTES_MAX: Final = 5 * 1024 * 1024 - 128
"""Maximum size of a stored entry (header, digest and payload). An entry of this size fits into
every kind of frame, even with the default limit of an Apache bookie for frames, which is 5 MiB."""


class ReceiveBuffer(bytearray):
    """Memory into which frames are received. The bodies of the frames are views of this memory."""

    __slots__ = ("charge", "unanswered")

    unanswered: int  # number of unanswered requests in this memory; set by their handlers
    charge: object  # the account in which this memory is counted; set by the handlers


def _references_when_unshared() -> int:
    probe = _Chunk()
    return sys.getrefcount(probe.buffer)


class _Chunk:
    __slots__ = ("buffer",)

    def __init__(self, size_bytes: int = 0) -> None:
        self.buffer = ReceiveBuffer(size_bytes)
        self.buffer.unanswered = 0
        self.buffer.charge = None

    def is_shared(self) -> bool:
        return sys.getrefcount(self.buffer) > _REFERENCES_WHEN_UNSHARED


_REFERENCES_WHEN_UNSHARED = _references_when_unshared()


def chunk_size_bytes(size_bytes: int) -> int:
    """Return the size of a chunk for `size_bytes` bytes, which is at most 1/8 or 4 KiB larger."""
    unit = max(_CHUNK_UNIT_BYTES, 1 << max(0, size_bytes.bit_length() - 4))
    return -(-size_bytes // unit) * unit


class ChunkPool:
    """A pool of memory chunks into which bytes are received. A chunk without views is reused.

    To obtain new memory takes more time than to receive bytes into this memory, because its pages
    are mapped and zeroed one by one (measured: 47 of 57 us for a frame of 64 KiB). A chunk may be
    returned to the pool while views of it still exist. `take` first tries the chunk that was
    returned first. The size of each chunk is a result of `chunk_size_bytes`. Several splitters may
    use one pool if they run on the same thread.
    """

    __slots__ = ("_chunks", "_size_bytes", "_size_bytes_max")

    def __init__(self, size_bytes_max: int = 32 << 20) -> None:
        self._chunks: dict[int, deque[_Chunk]] = {}
        self._size_bytes = 0
        self._size_bytes_max = size_bytes_max

    def take(self, size_bytes: int) -> _Chunk:
        """Return a chunk of at least `size_bytes` bytes. No view of the chunk is left."""
        size_bytes = chunk_size_bytes(size_bytes)
        chunks = self._chunks.get(size_bytes)
        if chunks and not chunks[0].is_shared():
            self._size_bytes -= size_bytes
            return chunks.popleft()
        return _Chunk(size_bytes)

    def give_back(self, chunk: _Chunk) -> None:
        """Return a chunk to the pool. Views of the chunk may still exist."""
        size_bytes = len(chunk.buffer)
        if not size_bytes:
            return
        while self._size_bytes + size_bytes > self._size_bytes_max and self._drop_one():
            pass
        self._chunks.setdefault(size_bytes, deque()).append(chunk)
        self._size_bytes += size_bytes

    def _drop_one(self) -> bool:
        for size_bytes, chunks in list(self._chunks.items()):
            if chunks:
                chunks.popleft()
                self._size_bytes -= size_bytes
                return True
            del self._chunks[size_bytes]
        return False


class FrameSplitter:
    """Provides memory for received bytes, and returns the bodies of complete frames as views of it.

    A body stays valid while it is referenced, because memory is reused only when no view of it is
    left. The splitter stores at most one incomplete frame, of up to `frame_size_max` bytes. If a
    small frame does not end in the chunk in which it begins, its first part is copied once, to the
    next chunk. If the chunk has no room for another frame after a large frame, the memory that
    `get_buffer` returns ends at the end of the large frame.

    Use: `n = receive_into(splitter.get_buffer())`, then `for body in splitter.received(n)`.

    `frame_size_max` limits a whole frame, including its length field. When the splitter needs new
    memory, it calls `obtain` with the minimum size and the best size. If the current memory
    suffices for the next bytes, the minimum size is 0. `obtain` either calls `grow` with a size
    from the minimum size to the best size and returns True, or it only returns False.
    """

    __slots__ = (
        "_chunk",
        "_chunk_size_bytes",
        "_end",
        "_expected_size_bytes",
        "_frame_size_max",
        "_has_room",
        "_obtain",
        "_pool",
        "_start",
    )

    def __init__(
        self,
        frame_size_max: int = FRAME_SIZE_BYTES_MAX,
        pool: ChunkPool | None = None,
        obtain: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._pool = pool or ChunkPool(_POOL_SIZE_BYTES_OF_ONE)
        self._frame_size_max = frame_size_max
        self._obtain = obtain or self._grow_best
        self._chunk_size_bytes = _CHUNK_SIZE_BYTES_MIN
        # Expected size of the next frame. If the last frame was large, this is the size of the last
        # frame.
        self._expected_size_bytes = _SPACE_BYTES_MIN
        self._chunk = _Chunk()
        self._start = 0  # the start of the incomplete frame
        self._end = 0  # the end of the received bytes
        self._has_room = False

    @property
    def held_bytes(self) -> int:
        """Number of received bytes of an incomplete frame."""
        return self._end - self._start

    @property
    def buffer(self) -> ReceiveBuffer:
        """The memory into which bytes are received now. It is empty at first and after `close`."""
        return self._chunk.buffer

    @property
    def held_head(self) -> memoryview:
        """The received part of the first 4 bytes of the body of an incomplete frame."""
        start = self._start + _LENGTH.size
        return memoryview(self._chunk.buffer)[start : min(start + 4, max(start, self._end))]

    def get_buffer(self) -> memoryview:
        """Return memory for the next bytes. It is not empty, and valid until the next `received`.

        If `make_room` was not called since the last bytes, this method calls it, and it must return
        True.
        """
        if not self._has_room:
            has_room = self.make_room()
            assert has_room, "bytes are received without memory for them"
        self._has_room = False
        buffer, start = self._chunk.buffer, self._start
        if self._end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            size_bytes = min(_LENGTH.size + length, self._frame_size_max)
            frame_end = start + size_bytes
            if size_bytes >= _UNCUT_SIZE_BYTES_MIN and frame_end + size_bytes > len(buffer):
                return memoryview(buffer)[self._end : frame_end]
        return memoryview(buffer)[self._end :]

    def make_room(self) -> bool:
        """Obtain memory for the next bytes if there is none; return whether there is memory now."""
        held = self._end - self._start
        size_bytes = len(self._chunk.buffer)
        least = wanted = 0
        if held >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._chunk.buffer, self._start)
            least = wanted = min(_LENGTH.size + length, self._frame_size_max)
        else:
            if held == 0 and self._start and not self._chunk.is_shared():
                self._start = self._end = 0
            wanted = held + self._expected_size_bytes
            if size_bytes - self._end < _SPACE_BYTES_LEAST:
                least = _CHUNK_SIZE_BYTES_MIN
        if self._start + wanted <= size_bytes:
            self._has_room = True
            return True
        if wanted > self._chunk_size_bytes:
            # The new chunk has room for two frames. If it had room for only one frame, half of
            # every frame would be copied to another chunk.
            wanted = max(wanted, min(2 * wanted, _CHUNK_SIZE_BYTES_LARGE))
        best = max(wanted, self._chunk_size_bytes)
        self._has_room = self._obtain(least, best) or not least
        return self._has_room

    def grow(self, size_bytes: int) -> None:
        """Receive into a new chunk of `size_bytes`, to which an incomplete frame is copied."""
        held = self._end - self._start
        chunk = self._pool.take(size_bytes)
        if held:
            chunk.buffer[:held] = memoryview(self._chunk.buffer)[self._start : self._end]
        self._pool.give_back(self._chunk)
        self._chunk, self._start, self._end = chunk, 0, held

    def close(self) -> ReceiveBuffer:
        """Give the memory back to the pool, and return its buffer.

        An incomplete frame is dropped.
        """
        buffer = self._chunk.buffer
        self._pool.give_back(self._chunk)
        self._chunk, self._start, self._end = _Chunk(), 0, 0
        self._has_room = False
        return buffer

    def _grow_best(self, _least: int, best: int) -> bool:
        self.grow(best)
        return True

    def received(self, size_bytes: int) -> list[memoryview]:
        """Add `size_bytes` received bytes, and return the bodies of the complete frames."""
        start, end = self._start, self._end + size_bytes
        buffer = self._chunk.buffer
        if end == len(buffer) and self._chunk_size_bytes < _CHUNK_SIZE_BYTES_MAX:
            self._chunk_size_bytes *= 2  # the sender has filled all the memory
        self._end = end
        view = memoryview(buffer)
        bodies: list[memoryview] = []
        unpack, length_max = _LENGTH.unpack_from, self._frame_size_max - _LENGTH.size
        while end - start >= _LENGTH.size:
            (length,) = unpack(buffer, start)
            if not _BODY_SIZE_BYTES_MIN <= length <= length_max:
                raise WireFormatError(
                    f"a frame has a body of {length} bytes, but {_BODY_SIZE_BYTES_MIN} to "
                    f"{length_max} bytes are allowed",
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
