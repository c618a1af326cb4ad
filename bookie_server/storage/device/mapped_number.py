"""A number in a file of the memory file system, which survives a SIGKILL but not a power loss."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from struct import Struct

FOLDER = Path("/dev/shm")  # noqa: S108 - its files are lost when the system stops
_number = Struct("q")  # native format, so the value is copied in one store
RUN_ID_SIZE = 8
SIZE = RUN_ID_SIZE + _number.size


class MappedNumber:
    """A signed number of 64 bits in shared memory, after the id of the run that sets the number."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping

    @classmethod
    def open(cls, name: str, run_id: str, *, create: bool) -> MappedNumber | None:
        """Map the number of a run.

        Return None if the number does not exist, if another run has set it, or if there is no
        memory file system. With `create`, a new number replaces the number of another run.
        """
        if create:
            # Another process may still map the old file, so this file is removed, not changed.
            cls.remove(name)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL) * create
        try:
            descriptor = os.open(FOLDER / name, flags, 0o600)
        except OSError:
            return None
        try:
            if create:
                os.posix_fallocate(descriptor, 0, SIZE)
            mapping = mmap.mmap(descriptor, SIZE)
        except (OSError, ValueError):
            return None
        finally:
            os.close(descriptor)
        owner = bytes.fromhex(run_id)
        if create:
            mapping[:RUN_ID_SIZE] = owner
        return cls(mapping) if mapping[:RUN_ID_SIZE] == owner else None

    @staticmethod
    def remove(name: str) -> None:
        """Remove the number, if it exists."""
        with contextlib.suppress(OSError):
            (FOLDER / name).unlink()

    def set(self, number: int) -> None:
        """Replace the number with one store of 8 bytes, which a SIGKILL cannot tear."""
        _number.pack_into(self._mapping, RUN_ID_SIZE, number)

    def get(self) -> int:
        """Return the number."""
        return int(_number.unpack_from(self._mapping, RUN_ID_SIZE)[0])
