"""Reads and writes all bytes of an open file, although one system call may transfer only a part."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from bookie_server.ports import Buffer

BUFFERS_PER_WRITE_MAX = 1_024


def read_all(descriptor: int, offset: int, size: int) -> bytes:
    """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier."""
    parts = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> None:
    """Write all buffers consecutively from `offset`."""
    for start in range(0, len(buffers), BUFFERS_PER_WRITE_MAX):
        part = buffers[start : start + BUFFERS_PER_WRITE_MAX]
        total = sum(map(len, part))
        written = os.pwritev(descriptor, part, offset)
        if written < total:
            # Short writes are rare, so copying the remaining bytes costs little in total.
            rest = memoryview(b"".join(part))[written:]
            while rest:
                count = os.pwrite(descriptor, rest, offset + written)
                written += count
                rest = rest[count:]
        offset += total


def end_of_data(descriptor: int) -> int | None:
    """Return the end of the last extent with data; None if the file system reports no extents."""
    end = 0
    try:
        while True:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else None
