"""How a bookie process ends."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """How a bookie process ends."""

    STOPPED = 0
    """On SIGTERM or SIGINT, everything accepted answered and on disk."""
    INTERNAL_ERROR = 1
    """A bug of ours; standard error has the traceback."""
    BAD_CONFIGURATION = 2
    """A setting is wrong; nothing was opened."""
    REFUSED_TO_START = 3
    """Cookie, lock, port or format; nothing was changed."""
    METADATA_UNAVAILABLE = 4
    """The metadata store could not be reached in time."""
    STORAGE_FAILED = 5
    """The disk failed or has no room to start; what was acknowledged before is on it."""
