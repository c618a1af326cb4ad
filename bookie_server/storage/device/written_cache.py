"""What writes leave in the page cache: as much as is of use, the oldest given back."""

from __future__ import annotations

from collections import deque
from typing import Protocol

DROPPED_BYTES_MIN = 1 << 20


class CachedFile(Protocol):
    """A file whose pages can be given back."""

    def drop_cached(self, offset: int, size: int) -> None:
        """Give back the page cache's copy of synced bytes."""


class WrittenCache:
    """Bounds what writes leave in the page cache: the oldest synced bytes are given back.

    The pages that one write gives back are the next one's. Pages that the machine has not used
    for a while are dear, most of all in a virtual machine, whose host has to find them first
    (measured here: 15 us to write 64 KiB to pages just given back, 110 to 390 us to new ones).
    Readers of the last entries need no file, and what others read is cached again by that.

    Called by the writer thread, or while that is idle.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._ranges: deque[tuple[CachedFile, int, int]] = deque()

    def make_room(self, size_bytes: int) -> None:
        """Let go of the oldest, so that so many more fit."""
        while self._ranges and self._size_bytes + size_bytes > self._size_bytes_max:
            oldest, start, length = self._ranges.popleft()
            self._size_bytes -= length
            oldest.drop_cached(start, length)

    def synced(self, file: CachedFile, offset: int, size_bytes: int) -> None:
        """Take note of bytes that were written and synced."""
        ranges = self._ranges
        if ranges:
            last, start, length = ranges[-1]
            if last is file and start + length == offset and length < DROPPED_BYTES_MIN:
                ranges.pop()
                offset, size_bytes = start, length + size_bytes
                self._size_bytes -= length
        ranges.append((file, offset, size_bytes))
        self._size_bytes += size_bytes
