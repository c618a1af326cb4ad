"""The vacation of this bookie. It exists while an operator drains, decommissions or recovers it.

A start writes its return into the vacation before it checks the cookie, so an auditor that is about
to delete the cookie detects the return (AUTORECOVERY.md#Y7). While the bookie runs, a watch reports
changes of the vacation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerLogError, MetadataVersionError, StartupError
from ledgerlog_spark.metadata.replication.ports import VacationStore
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind

ATTEMPTS_MAX: Final = 16
RETRY_DELAY_MS: Final = 1_000

_logger = get_logger("vacation")


class OwnVacation:
    """Follows the vacation of one bookie."""

    def __init__(self, store: VacationStore, bookie_id: str) -> None:
        self._store = store
        self._bookie_id = bookie_id
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def note_return(self) -> None:
        """If the bookie has a vacation, count this start in it. This is the first step of a start.

        Raises:
            StartupError: The bookie is out of service.
            MetadataVersionError: The vacation changed during each attempt.
        """
        for _ in range(ATTEMPTS_MAX):
            found = await self._load()
            if found is None:
                return
            returned = replace(found.value, returns=found.value.returns + 1)
            try:
                await self._store.write(self._bookie_id, returned, found.version)
            except MetadataVersionError:
                continue
            return
        raise MetadataVersionError(
            f"the vacation of bookie {self._bookie_id} has changed during {ATTEMPTS_MAX} attempts "
            "to write it: start the bookie again",
            bookie_id=self._bookie_id,
        )

    async def is_read_only(self) -> bool:
        """Return whether the bookie must register as read-only.

        If an operator is recovering the bookie, this method ends that recovery.

        Raises:
            StartupError: The bookie is out of service.
        """
        found = await self._load()
        if found is not None and found.value.kind is VacationKind.RECOVER:
            await self._end_recovery(found)
            return False
        return found is not None

    def follow(self, on_change: Callable[[bool], None]) -> None:
        """Call `on_change` with the result of `is_read_only` now, and after each change of it."""
        cancel = self._store.watch(self._bookie_id, self._changed.set)
        self._task = asyncio.create_task(self._follow(on_change), name="vacation")
        self._task.add_done_callback(lambda _: cancel())
        self._changed.set()  # the vacation may have changed before this watch

    async def stop(self) -> None:
        """End the work of `follow`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, on_change: Callable[[bool], None]) -> None:
        before = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                is_read_only = await self.is_read_only()
            except StartupError:
                is_read_only = True
                if before is not None:
                    _logger.warning("out_of_service", bookie_id=self._bookie_id)
            except LedgerLogError as error:
                _logger.warning("vacation_not_read", **fields_of(error))
                self._changed.set()
                await asyncio.sleep(RETRY_DELAY_MS / 1_000)
                continue
            if is_read_only != before:
                on_change(is_read_only)
                before = is_read_only

    async def _load(self) -> Versioned[Vacation] | None:
        found = await self._store.load(self._bookie_id)
        if found is not None and found.value.forbids_starts:
            raise StartupError(
                f"bookie {self._bookie_id} was decommissioned: its entries are on other bookies. "
                "Format its directories with `ledgerlog bookie format`, and start a bookie with "
                "another bookie_id",
                bookie_id=self._bookie_id,
                reason="decommissioned",
            )
        return found

    async def _end_recovery(self, found: Versioned[Vacation]) -> None:
        """Delete the vacation of kind `recover`, because the bookie is back with its entries."""
        if await self._store.delete(self._bookie_id, found.version):
            _logger.info("recovery_ended", bookie_id=self._bookie_id)
        else:
            self._changed.set()
