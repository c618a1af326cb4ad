"""Reads and writes the file that stores the position of the scrub.

The position is only a hint. If the file is lost, damaged or cannot be written, the next start
begins a new pass. So errors of the file are ignored.
"""

from __future__ import annotations

import contextlib

from bookie_server.core.background.scrub import (
    NAME,
    POSITION_SIZE,
    ScrubPosition,
    decode_position,
    encode_position,
)
from bookie_server.errors import StorageError
from bookie_server.ports import Priority
from bookie_server.storage.files.pool import FilePool


async def load_position(files: FilePool) -> ScrubPosition:
    """Return the stored position. If there is none, return the position before the first pass."""
    with contextlib.suppress(StorageError):
        handle = await files.open(NAME)
        try:
            return decode_position(await handle.read(0, POSITION_SIZE, Priority.BACKGROUND))
        finally:
            await handle.close()
    return ScrubPosition()


async def keep_position(files: FilePool, position: ScrubPosition) -> None:
    """Store the position. If only a part is written, the file counts as damaged."""
    with contextlib.suppress(StorageError):
        handle = await files.open(NAME, create=True)
        try:
            await handle.write(0, (encode_position(position),), Priority.BACKGROUND)
            await handle.datasync(Priority.BACKGROUND)
        finally:
            await handle.close()
