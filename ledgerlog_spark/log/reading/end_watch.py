"""Notifies a caller when a log may have more rows, without polling.

The end of a transactional log moves only when its head changes, so only the head is watched. The
end of a leader log also moves when its open ledgers get entries. Therefore, for each open ledger,
the ledger metadata and the last add confirmed on one bookie are watched too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from ledgerlog_spark.callbacks import notify
from ledgerlog_spark.client.arguments import check_callback
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.ports import LedgerReaderHandle
from ledgerlog_spark.metadata.tree import OnChange
from ledgerlog_spark.protocol.log.state.records import LogKind
from ledgerlog_spark.retry import ENDLESS
from ledgerlog_spark.waits import forever, within


class EndWatch:
    """A watch of one log's end. It lasts until `cancel` or until the client is closed."""

    def __init__(self, host: LogHost, on_change: OnChange) -> None:
        """Begin to watch. `on_change` is called on the running event loop."""
        check_callback(on_change)
        self._host = host
        self._on_change = on_change
        self._followed: dict[int, LedgerReaderHandle] = {}
        self._is_cancelled = False
        self._changed = asyncio.Event()  # the head may have changed, or the watch was cancelled
        self._forget = host.ledgers.when_closed(self.cancel)
        self._cancel_head = host.store.watch_head(host.log_id, self._on_head)
        self._following = asyncio.get_running_loop().create_task(self._follow())
        self._following.add_done_callback(self._on_end)

    def cancel(self) -> None:
        """End the watch and the calls of `on_change`. A second call does nothing."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        self._changed.set()
        self._cancel_head()
        self._forget()

    def _on_head(self) -> None:
        self._on_ledger()
        self._changed.set()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": f"watching the end of log {self._host.log_id} failed", "exception": bug}
            )

    async def _follow(self) -> None:
        """Follow exactly the open ledgers that the head lists, until `cancel`.

        Retry after a failure.
        """
        pauses_ms = ENDLESS.pauses_ms()
        is_transactional = False
        while not self._is_cancelled and not is_transactional:
            self._changed.clear()
            try:
                is_transactional = await self._follow_open_ledgers()
            except LedgerLogError:
                with contextlib.suppress(TimeoutError):
                    await within(self._changed.wait(), next(pauses_ms) / 1e3)
            else:
                pauses_ms = ENDLESS.pauses_ms()
                if not is_transactional:
                    await forever(self._changed.wait(), "the watch ends when it is cancelled")
        await self._close_handles(list(self._followed))

    async def _follow_open_ledgers(self) -> bool:
        """Follow the open ledgers that the head lists now. Return whether the log is transactional.

        A transactional log never has open ledgers.
        """
        found = await self._host.store.read_head(self._host.log_id)
        if found is None or found.value.kind is LogKind.TRANSACTIONAL:
            return found is not None
        listed = [ledger.ledger_id for ledger in found.value.open_ledgers]
        await self._close_handles(set(self._followed).difference(listed))
        for ledger_id in listed:
            if ledger_id not in self._followed and not self._is_cancelled:
                handle = await self._host.ledgers.open_ledger(ledger_id, is_listed=True)
                self._followed[ledger_id] = handle
                handle.follow(self._on_ledger)
        return False

    async def _close_handles(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            await self._followed.pop(ledger_id).aclose()

    def _on_ledger(self) -> None:
        if not self._is_cancelled:
            notify(self._on_change)
