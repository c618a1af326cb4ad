"""Writing to a socket now, where its transport would wait for the end of the loop's turn."""

from __future__ import annotations

import asyncio
import os
from typing import Final

NO_DESCRIPTOR: Final = -1


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """What `is_written_now` writes to; `NO_DESCRIPTOR` where that cannot be."""
    connected = transport.get_extra_info("socket")
    # On Windows a socket's number is no file descriptor.
    return NO_DESCRIPTOR if connected is None or os.name != "posix" else connected.fileno()


def is_written_now(transport: asyncio.Transport, descriptor: int, data: bytes) -> bool:
    """Whether `data` was taken; what the system did not take of it, the transport sends next.

    A lone request or answer is on its way so much earlier: uvloop collects what is written and
    sends it when everything else in the turn is done. What comes in company is better left to it,
    for each call of this is a call of the system.

    Args:
        transport: Of the connection. Nothing is written before what it still has to send.
        descriptor: Of `transport`, from `descriptor_of`.
        data: To send, at least one byte.

    Returns:
        False when nothing was done: the transport has to send `data`, and will tell what is wrong.
    """
    # A closing transport may have let go of the descriptor, which may be another file's by now.
    if descriptor < 0 or transport.is_closing() or transport.get_write_buffer_size():
        return False
    try:
        count = os.write(descriptor, data)
    except OSError:
        return False
    if count < len(data):
        transport.write(memoryview(data)[count:])
    return True
