"""Translates errors of the operating system to errors of the storage."""

from __future__ import annotations

import errno

from bookie_server.errors import (
    DiskFullError,
    MissingFileError,
    StorageError,
    SyncFailedError,
    TooManyFilesError,
)

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))


def translated(error: OSError, name: str, verb: str) -> StorageError:
    """Return the StorageError for an error of the operating system."""
    message = f"cannot {verb} {name}: {error.strerror}"
    if error.errno == errno.ENOENT:
        return MissingFileError(message, path=name)
    if error.errno in _FULL and verb != "sync":
        # If a sync fails because the device is full, the kernel nevertheless counts the pages as
        # written. So this error is a SyncFailedError.
        return DiskFullError(f"{message}; make room on the device", path=name)
    if error.errno in _NO_DESCRIPTOR:
        return TooManyFilesError(f"{message}; raise the limit of open files (ulimit -n)", path=name)
    if verb in ("write", "sync"):
        return SyncFailedError(message, path=name)
    return StorageError(message, path=name)
