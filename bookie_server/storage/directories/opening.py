"""Opens the directories of a bookie."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from bookie_server.errors import DamagedDirectoryError, StorageError, unusable_directory
from bookie_server.storage.directories.router import LedgerDirectories
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared

BookieStorage = LedgerStorage | LedgerDirectories
"""The storage of a bookie with one directory, or with several directories."""


async def open_directories(parts: Sequence[Shared]) -> BookieStorage:
    """Replay the directories, and return their storage.

    Raises:
        UnusableDirectoryError: One of several directories is damaged, or its device has failed.
    """
    async with AsyncExitStack() as closers:
        opened: list[LedgerStorage] = []
        for shared in parts:
            try:
                storage = await LedgerStorage.open(shared)
            except (StorageError, DamagedDirectoryError) as error:
                if len(parts) == 1:
                    raise
                raise unusable_directory(shared.files.path, error) from error
            closers.push_async_callback(storage.close)
            opened.append(storage)
        joined = opened[0] if len(opened) == 1 else LedgerDirectories(opened)
        closers.pop_all()
    return joined
