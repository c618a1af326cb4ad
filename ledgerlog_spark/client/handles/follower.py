"""Follows the end of a ledger that is being written, without polling (LOGS.md#H4).

A follower watches the ledger's metadata in the metadata store, and the last add confirmed on one
bookie of the last ensemble. The follower first watches the herald, the bookie that the writer
notifies first. After a failure, the follower watches the next bookie.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ledgerlog_spark.callbacks import notify
from ledgerlog_spark.client.handles.lac_announcer import herald_index
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import InternalError, LedgerLogError
from ledgerlog_spark.metadata.tree import CancelWatch
from ledgerlog_spark.model import Code, LedgerMetadata
from ledgerlog_spark.retry import ENDLESS
from ledgerlog_spark.transport.port import LacRise, WatchLac


class Followed(Protocol):
    """The attributes and methods of a read handle that a follower uses."""

    id: int
    metadata: LedgerMetadata

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that is known to be acknowledged."""

    async def reload(self) -> None:
        """Read the metadata again."""

    async def read_last_add_confirmed(self) -> int:
        """Read the last add confirmed from the bookies of the last ensemble."""

    def take_rise(self, rise: LacRise) -> None:
        """Update the handle from a bookie's report of the last add confirmed."""


class LedgerFollower:
    """Keeps a read handle's end up to date until the follower is cancelled or the ledger is closed.

    Attributes:
        error: The error that stopped the follower. It is None while the follower runs, and also if
            the follower stopped because the ledger was closed. A retriable error of the metadata
            store does not stop the follower.
    """

    def __init__(
        self,
        handle: Followed,
        services: Services,
        on_change: Callable[[], None],
        entries_size_bytes_max: int,
    ) -> None:
        """Begin to follow the ledger. `on_change` is called on the event loop after each change.

        An exception of `on_change` is reported to the event loop, and the follower continues.
        """
        self.error: LedgerLogError | None = None
        self._handle = handle
        self._services = services
        self._on_change = on_change
        self._entries_size_bytes_max = entries_size_bytes_max
        self._loop = asyncio.get_running_loop()
        self._ensemble: tuple[str, ...] = ()
        self._place = 0
        self._failures = 0
        self._cancel_lac: CancelWatch | None = None
        self._timer: asyncio.Handle | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_stale = False
        self._is_over = False
        self._cancel_record = services.ledgers.watch(handle.id, self._on_record)
        self._on_record()

    @property
    def is_over(self) -> bool:
        """Whether the follower has stopped."""
        return self._is_over

    def cancel(self) -> None:
        """Stop following, and never call `on_change` after that. A second call does nothing."""
        self._is_over = True
        self._cancel_record()
        self._drop_lac()
        for task in (self._reloading, self._asking):
            if task is not None:
                task.cancel()

    # --- the metadata, which gives the last ensemble and the state of the ledger ---

    def _on_record(self) -> None:
        self._is_stale = True
        if self._reloading is None and not self._is_over:
            self._reloading = self._loop.create_task(self._reload())
            self._reloading.add_done_callback(self._on_reloaded)

    async def _reload(self) -> None:
        pauses_ms = ENDLESS.pauses_ms()
        while self._is_stale:
            self._is_stale = False
            try:
                await self._handle.reload()
            except LedgerLogError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(next(pauses_ms) / 1e3)
                self._is_stale = True

    def _on_reloaded(self, task: asyncio.Task[None]) -> None:
        self._reloading = None
        if task.cancelled() or self._is_over:
            return
        error = task.exception()
        if error is not None:
            self.error = _as_ours(error)
        if error is not None or self._handle.metadata.is_closed:
            self.cancel()
        elif self._handle.metadata.last_fragment.ensemble != self._ensemble:
            fragment = self._handle.metadata.last_fragment
            self._ensemble = fragment.ensemble
            # A writer adds a fragment only after all entries before the fragment are confirmed.
            self._handle.take_rise(LacRise(fragment.first_entry_id - 1, 0))
            self._place = herald_index(self._handle.id, len(self._ensemble))
            self._failures = 0
            self._watch_lac()
        if self._is_stale:
            self._on_record()
        notify(self._on_change)

    # --- the last add confirmed ---

    def _watch_lac(self) -> None:
        self._drop_lac()
        bookie_id = self._ensemble[self._place % len(self._ensemble)]
        self._cancel_lac = self._services.transport.watch_lac(
            bookie_id,
            WatchLac(
                self._handle.id, self._handle.last_add_confirmed, self._entries_size_bytes_max
            ),
            self._on_rise,
            partial(self._on_lac_end, self._ensemble),
        )

    def _on_rise(self, rise: LacRise) -> None:
        self._failures = 0
        self._handle.take_rise(rise)
        notify(self._on_change)

    def _on_lac_end(self, ensemble: tuple[str, ...], _code: Code) -> None:
        if self._is_over or ensemble != self._ensemble:
            return
        self._cancel_lac = None
        self._place += 1
        self._failures += 1
        rounds = self._failures // len(ensemble)
        if rounds == 0:
            self._watch_lac()
        else:
            pause_ms = ENDLESS.pause_ms(rounds)
            self._timer = self._loop.call_later(pause_ms / 1e3, self._watch_or_ask)

    def _watch_or_ask(self) -> None:
        """Watch the next bookie. Also read the LAC, because perhaps no bookie supports watches."""
        self._watch_lac()
        if self._asking is None:
            self._asking = self._loop.create_task(self._ask())

    async def _ask(self) -> None:
        before = self._handle.last_add_confirmed
        try:
            with contextlib.suppress(LedgerLogError):
                await self._handle.read_last_add_confirmed()
        finally:
            self._asking = None
        if self._handle.last_add_confirmed > before and not self._is_over:
            notify(self._on_change)

    def _drop_lac(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._cancel_lac is not None:
            self._cancel_lac()
            self._cancel_lac = None


def _as_ours(error: BaseException) -> LedgerLogError:
    if isinstance(error, LedgerLogError):
        return error
    crash = InternalError(f"following a ledger failed: {error}; this is a bug, please report it")
    crash.__cause__ = error
    return crash
