"""Opens the directories of a bookie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

from bookie_server.errors import (
    DamagedDirectoryError,
    StorageError,
    shared_ledger,
    unusable_directory,
)
from bookie_server.ports import Tasks
from bookie_server.storage.directories.router import LedgerDirectories
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared

BookieStorage = LedgerStorage | LedgerDirectories
"""The storage of a bookie with one directory, or with several directories."""


async def open_directories(parts: Sequence[Shared]) -> BookieStorage:
    """Replay the directories, and return their storage.

    Raises:
        UnusableDirectoryError: One of several directories is damaged, or its device has failed.
        SharedLedgerError: Two directories have the same ledger.
    """
    opened: list[LedgerStorage] = []
    try:
        for shared in parts:
            with naming(shared.files.path, len(parts)):
                opened.append(await LedgerStorage.open(shared))
        return await _joined(opened, parts[0].tasks)
    except Exception:
        for storage in opened:
            await storage.close()
        raise


@contextmanager
def naming(path: str, directories_count: int) -> Iterator[None]:
    """If the bookie has several directories, name the directory in an error about it.

    Raises:
        UnusableDirectoryError: The directory is damaged, or its device has failed.
    """
    try:
        yield
    except (StorageError, DamagedDirectoryError) as error:
        if directories_count == 1:
            raise
        raise unusable_directory(path, error) from error


async def _joined(opened: Sequence[LedgerStorage], tasks: Tasks) -> BookieStorage:
    if len(opened) == 1:
        return opened[0]
    _require_one_home(opened)
    joined = LedgerDirectories(opened, tasks)
    await joined.losses.follow()
    return joined


def _require_one_home(directories: Sequence[LedgerStorage]) -> None:
    for one, other in combinations(directories, 2):
        both = one.ledger_ids & other.ledger_ids
        if both:
            raise shared_ledger(min(both), one.path, other.path)
