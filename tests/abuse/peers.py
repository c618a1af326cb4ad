"""Connections of bad peers: raw sockets under asyncio, which are re-created when they close."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

RECONNECT_SECONDS = 0.02

Play = "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]"


class Counts:
    """The numbers of connections that the peers opened and lost."""

    def __init__(self) -> None:
        self.connected = 0
        self.closed = 0


async def again_and_again(
    port: int,
    play: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    counts: Counts,
    *,
    limit: int = 1 << 16,
) -> None:
    """Run the same part of a peer on one connection after the other, until cancelled.

    Args:
        port: The port of a bookie.
        play: Returns, or raises OSError, when the connection has ended.
        counts: Counts the connections.
        limit: Number of bytes that this side reads ahead; with 0, it would read none.
    """
    while True:
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
            counts.connected += 1
            await play(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            counts.closed += 1
            if writer is not None:
                with contextlib.suppress(RuntimeError):
                    writer.transport.abort()
        await asyncio.sleep(RECONNECT_SECONDS)


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Read and drop all bytes, until the bookie closes the connection."""
    while await reader.read(1 << 16):
        pass


async def without_reading(writer: asyncio.StreamWriter) -> None:
    """Read nothing from the socket until the bookie has closed the connection."""
    transport = cast("asyncio.Transport", writer.transport)
    transport.pause_reading()
    # A paused transport is not notified of the close, but a write fails.
    while not transport.is_closing():
        await asyncio.sleep(0.1)
        if not transport.get_write_buffer_size():
            writer.write(b"")


async def gathered(plays: Sequence[Awaitable[None]]) -> None:
    """Run all coroutines until they are cancelled."""
    await asyncio.gather(*plays)
