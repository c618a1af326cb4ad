"""Begins and ends epochs of doubt of a directory, and stores the transaction of the doubt.

A new epoch immediately affects answers: from this moment, no answer denies that an entry exists.
All other work uses only durable epochs, because a crash may remove an epoch that is not durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from bookie_server.core.doubt import Doubt
from bookie_server.errors import StorageError
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.modes.recorded_run import Commits
from bookie_server.storage.shared import Shared


class Losses:
    """Changes the doubt of one directory while the bookie runs."""

    def __init__(self, shared: Shared, commits: Commits) -> None:
        self._shared = shared
        self._health = shared.health
        self._commits = commits
        # Called when a new epoch of doubt is durable.
        self.on_raised: Callable[[], None] = lambda: None
        # Called when the doubt has changed.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def durable(self) -> Doubt:
        """The doubt in the durable MANIFEST."""
        return self._shared.store.current.doubt

    async def raise_doubt(self) -> None:
        """Begin a new epoch of doubt, because records may be lost. It is durable on return.

        Raises:
            StorageError: The storage has failed or ended.
        """
        await self._make_durable(self._raise())

    def lose_record(self, file: FinishedFile) -> None:
        """Begin a new epoch of doubt, because a file has lost a record of an unknown ledger.

        The MANIFEST with the new epoch also marks the file.
        """
        file.entry = replace(file.entry, has_damage=True)
        self._health.damaged_files.add(file.entry.file_id)
        self._shared.tasks.spawn("doubt after a lost record", self._try(self._raise()))

    def _raise(self) -> int:
        health = self._health
        health.doubt = health.doubt.raised()
        health.check_epoch += 1
        self.on_change()
        return health.doubt.epoch

    async def _make_durable(self, epoch: int) -> None:
        await self._commit(lambda doubt: doubt.epoch >= epoch)
        self.on_raised()

    async def _try(self, epoch: int) -> None:
        # After a failure, the next start detects the loss again.
        with contextlib.suppress(StorageError):
            await self._make_durable(epoch)

    async def date_doubt(self, epoch: int, transaction: int) -> None:
        """Store durably the id of a transaction that began after `epoch` was durable.

        Raises:
            StorageError: The storage has failed or ended.
        """
        before = self._health.doubt
        self._health.doubt = before.dated(epoch, transaction)
        if self._health.doubt != before:
            await self._commit(lambda doubt: doubt.epoch > epoch or doubt.transaction > 0)

    async def end_doubt(self, epoch: int) -> None:
        """End all epochs of doubt up to `epoch`, after a repair has checked all ledgers.

        The MANIFEST has the states of all ledgers. So a ledger with a state stays in limbo until it
        is cleared, even after a crash.

        Raises:
            StorageError: The storage has failed or ended.
        """
        self._health.doubt = self._health.doubt.ended(epoch)
        self.on_change()
        await self._commit(lambda doubt: doubt.cleared >= epoch)

    async def _commit(self, is_durable: Callable[[Doubt], bool]) -> None:
        """Commit a MANIFEST with the change. While the device has no room for it, try again."""
        shared = self._shared
        await self._commits.commit_soon()
        while not is_durable(self.durable):
            if self._health.has_failed or self._health.is_closing:
                raise StorageError(
                    "the doubt of the directory is not durable, because the storage has ended",
                    path=shared.files.path,
                )
            await shared.tasks.sleep(shared.settings.allocation_retry_ms)
            await self._commits.commit_soon()
