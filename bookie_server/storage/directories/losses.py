"""The doubt of a bookie with several directories. The doubt is the same in all directories.

A ledger without a state may have been in any directory. So a loss in one directory begins a new
epoch in all directories. Without this epoch, another directory would make a cleared state for a
lost ledger. Before the bookie accepts requests, all directories have the same epoch. After that,
the states of all ledgers are in memory, so the other directories may store a new epoch later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from bookie_server.core.doubt import Doubt
from bookie_server.errors import StorageError
from bookie_server.ports import Future, Tasks
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.wake_ups import settle


def joined_doubt(doubts: Iterable[Doubt]) -> Doubt:
    """Return the doubt of a bookie whose directories have these doubts."""
    all_doubts = tuple(doubts)
    epoch = max(doubt.epoch for doubt in all_doubts)
    transactions = [doubt.transaction if doubt.epoch == epoch else 0 for doubt in all_doubts]
    return Doubt(epoch, min(doubt.cleared for doubt in all_doubts), min(transactions))


class JoinedLosses:
    """Begins and ends epochs of doubt in all directories that have not failed.

    It also stores the transaction of the doubt. A directory that has failed never denies that a
    ledger exists, and its ledgers are not repaired. After a restart, either this directory gets the
    doubt of the other directories, or it is removed, which begins a new epoch.
    """

    def __init__(self, directories: Sequence[LedgerStorage], tasks: Tasks) -> None:
        self._directories = directories
        self._tasks = tasks
        self._is_raising = False
        self._waiting: list[Future[None]] = []
        # Called when a new epoch is durable in all directories.
        self.on_raised: Callable[[], None] = lambda: None
        for directory in directories:
            directory.losses.on_raised = self._follow_soon

    @property
    def durable(self) -> Doubt:
        """The doubt that is durable in all directories."""
        return joined_doubt(directory.doubt for directory in self._serving or self._directories)

    @property
    def _serving(self) -> list[LedgerStorage]:
        return [each for each in self._directories if each.failure is None]

    async def raise_doubt(self) -> None:
        """Begin a new epoch of doubt, which is durable in all directories on return."""
        await self._raise_to(self.durable.epoch + 1)

    async def follow(self) -> None:
        """Store the newest epoch of all directories durably in each directory."""
        await self._raise_to(0)

    def _follow_soon(self) -> None:
        if not self._is_raising:
            self._tasks.spawn("doubt of all directories", self._try_to_follow())

    async def _try_to_follow(self) -> None:
        # If this fails, the next start stores the new epoch in the other directories.
        with contextlib.suppress(StorageError):
            await self.follow()

    async def _raise_to(self, epoch: int) -> None:
        while self._is_raising:
            ended: Future[None] = self._tasks.future()
            self._waiting.append(ended)
            await ended
        self._is_raising = True
        try:
            await self._raise_lower(epoch)
        finally:
            self._is_raising = False
            settle(self._waiting)
        self.on_raised()

    async def _raise_lower(self, epoch: int) -> None:
        while True:
            epoch = max(epoch, self.durable.epoch)
            lower = [each for each in self._serving if each.doubt.epoch < epoch]
            if not lower:
                return
            with _unless_failed(lower[0]):
                await lower[0].raise_doubt()

    async def date_doubt(self, epoch: int, transaction: int) -> None:
        """Store a transaction that began after `epoch` was durable in all directories."""
        for directory in self._serving:
            with _unless_failed(directory):
                await directory.date_doubt(epoch, transaction)

    async def end_doubt(self, epoch: int) -> None:
        """End all epochs of doubt up to `epoch`, after a repair has checked all ledgers."""
        for directory in self._serving:
            with _unless_failed(directory):
                # If the directory ended an epoch larger than its own, its next loss would begin an
                # epoch that has already ended.
                await directory.end_doubt(min(epoch, directory.doubt.epoch))


@contextlib.contextmanager
def _unless_failed(directory: LedgerStorage) -> Iterator[None]:
    try:
        yield
    except StorageError:
        if directory.failure is None:
            raise
