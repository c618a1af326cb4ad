"""When gathered appends are sent: by the turn of the loop, by linger, as far as a window allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from ledgerlog_spark.client.appends.batches import AppendBatches, Gathered, Waiter
    from ledgerlog_spark.client.settings import ClientSettings
    from ledgerlog_spark.protocol.ledger.messages import Payload


BACKLOGS_MAX = 16
"""Times the settings' backlog that may wait to be sent; beyond it appends are refused."""


def _nothing() -> None:
    """Nobody waits for a pause."""


class AppendPace:
    """Takes appends and hands them on in runs, on the thread of the event loop.

    What is appended within one turn of the loop travels together. A run that could take more goes
    out at once while few runs are in flight; else it waits for company, the linger at most.
    """

    def __init__(
        self,
        waiting: AppendBatches,
        settings: ClientSettings,
        *,
        can_send: Callable[[], bool],
        in_flight: Callable[[], int],
        send: Callable[[Gathered], None],
        on_pause: Callable[[], None] = _nothing,
    ) -> None:
        """Nothing is sent before the first append.

        Args:
            waiting: Gathers what is not sent yet.
            settings: Linger, backlog, and how many runs in flight are few.
            can_send: Whether the window takes one more run.
            in_flight: Runs that were sent and are not acknowledged.
            send: Sends one run.
            on_pause: Called when as much was sent as could be.
        """
        self._waiting = waiting
        self._settings = settings
        self._can_send = can_send
        self._in_flight = in_flight
        self._send = send
        self._on_pause = on_pause
        self._loop = asyncio.get_running_loop()
        self._is_sending = False
        self._is_scheduled = False
        self._linger_timer: asyncio.Handle | None = None

    @property
    def has_backlog(self) -> bool:
        """Whether as much waits to be sent as the settings allow."""
        return (
            self._waiting.entries >= self._settings.backlog_entries_max
            or self._waiting.size_bytes >= self._settings.backlog_size_bytes_max
        )

    def refusal(self) -> LocalProtocolError | None:
        """Why nothing more may be added now; None while it may. `drain` makes room."""
        waiting, settings = self._waiting, self._settings
        if (
            waiting.entries < BACKLOGS_MAX * settings.backlog_entries_max
            and waiting.size_bytes < BACKLOGS_MAX * settings.backlog_size_bytes_max
        ):
            return None
        return LocalProtocolError(
            f"{waiting.entries:,} appends of {waiting.size_bytes:,} bytes wait to be sent: await "
            "drain() between appends",
            entries=waiting.entries,
            size_bytes=waiting.size_bytes,
        )

    @property
    def is_lingering(self) -> bool:
        """Whether appends wait for company, and are sent later without anybody's doing."""
        return self._linger_timer is not None

    def add(self, payload: Payload, waiter: Waiter) -> None:
        """Take one append; it is sent at the end of this turn of the loop at the earliest."""
        self._waiting.add(payload, waiter)
        if not self._is_scheduled:
            self._schedule()

    def add_batch(self, payloads: Sequence[Payload], waiter: Waiter) -> None:
        """Take a batch of at least one payload; like `add`."""
        self._waiting.add_batch(payloads, waiter)
        if not self._is_scheduled:
            self._schedule()

    def send_now(self) -> None:
        """Send what was appended, as far as window and batching allow."""
        waiting = self._waiting
        if self._is_sending:
            return
        if not waiting.entries and self._linger_timer is None:
            self._on_pause()
            return
        self._is_sending = True
        try:
            while waiting.entries and self._can_send():
                is_pipe_empty = self._in_flight() < self._settings.runs_in_flight_min
                run = waiting.take() if is_pipe_empty else waiting.take_full()
                if run is None:
                    break
                self._send(run)
        finally:
            self._is_sending = False
        if not waiting.entries:
            self.cancel_linger()
        elif self._linger_timer is None and self._can_send():
            self._linger_timer = self._loop.call_later(
                self._settings.linger_ms / 1e3, self._on_linger_over
            )
        self._on_pause()

    def cancel_linger(self) -> None:
        """Let nothing be sent by time alone."""
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._on_scheduled)

    def _on_scheduled(self) -> None:
        self._is_scheduled = False
        self.send_now()

    def _on_linger_over(self) -> None:
        self._linger_timer = None
        if self._can_send() and (run := self._waiting.take()) is not None:
            self._is_sending = True
            try:
                self._send(run)
            finally:
                self._is_sending = False
        self.send_now()
