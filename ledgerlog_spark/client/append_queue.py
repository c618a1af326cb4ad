"""The queue of one writer's appends.

An append stays in the queue until the append is acknowledged or fails. `AppendQueue` gathers
appends into runs, decides when a run is sent, limits the number and size of unsent appends, and
sets the results or errors of appends. The owner of the queue is the handle of a ledger or the
leader of a log. The owner gives each run to its machine and reports the outcome to the queue. All
methods must be called on the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.model import RUN_ENTRIES_MAX, RUN_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.ledger.messages import Payload
from ledgerlog_spark.waits import forever

BACKLOGS_MAX = 16
"""If the unsent appends reach this multiple of the settings' backlog, more appends are refused."""

PENDING_ENDS = "`WriterSettings.add_quorum_timeout_ms` ends pending appends"


class Waiter(Protocol):
    """The methods of a future (of asyncio or of `concurrent.futures`) that the queue calls."""

    def done(self) -> bool:
        """Whether the future was completed or cancelled."""

    def set_result(self, result: Any, /) -> None:
        """Complete the future with a result."""

    def set_exception(self, exception: Any, /) -> None:
        """Complete the future with an error."""


class AppendListener(Protocol):
    """Receives the progress of the appends of a write handle.

    The blocking API is such a listener.
    """

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """Count entries that have left the queue, and the bytes of all their payloads."""

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Set the results of futures, in the order of the list."""


class RunMachine(Protocol):
    """The property with which a machine limits the runs in flight."""

    @property
    def can_add(self) -> bool:
        """Whether the machine accepts one more run now."""


class Gathered:
    """Payloads of one run in the order of their appends, and the appends that end in this run."""

    __slots__ = ("body", "continues", "payloads", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        # (future, index of the append's last payload in the run, number of entries; 0 if no batch)
        self.waiters: list[tuple[Waiter, int, int]] = []
        self.size_bytes = 0  # size of the payloads
        self.continues = False  # whether the first payload continues a batch of an earlier run
        self.body: Any = None  # used only by the owner of the queue: a leader stores its entry here

    def results(self, first_entry_id: int) -> list[tuple[Any, Any]]:
        """Return the future of each append with its result: an entry id, or the ids of a batch."""
        first = first_entry_id
        return [
            (waiter, range(first + offset - batch + 1, first + offset + 1))
            if batch
            else (waiter, first + offset)
            for waiter, offset, batch in self.waiters
        ]

    def fail(self, error: LedgerLogError) -> None:
        """Set `error` as the result of each append that ends in this run."""
        for waiter, _, _ in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class AppendQueue:
    """The pending appends in order, divided into runs.

    An entry above the size limit is its own run. Appends that are called within one iteration of
    the event loop are sent together. A full run is sent as soon as the window of the machine allows
    it. A run that is not full is sent immediately if fewer than `few_in_flight` runs are in flight.
    Otherwise the run waits for further appends, but not longer than the setting `linger_ms`.
    """

    def __init__(
        self,
        window: RunMachine,
        send: Callable[[Gathered], None],
        settings: ClientSettings,
        *,
        few_in_flight: int,
        nothing: object = range(0),
        entries_max: int = RUN_ENTRIES_MAX,
        size_bytes_max: int = RUN_SIZE_BYTES_MAX,
    ) -> None:
        """Create an empty queue. `entries_max` and `size_bytes_max` are limits of one run."""
        self.entries = 0
        """Number of entries that wait to be sent."""
        self.size_bytes = 0
        """Payload bytes of the entries that wait to be sent."""
        self.in_flight: deque[Gathered] = deque()
        """Runs that were sent, oldest first. The owner removes a run when it is acknowledged."""
        self.refusal: Callable[[], LedgerLogError] | None = None
        """The function that creates the error of each further append; None while appends are
        accepted."""
        self.listener: AppendListener | None = None
        """The listener that completes the futures of `add` and `add_batch`; None for asyncio
        futures."""
        self.nothing = nothing
        """The result of an append of an empty batch."""
        self._window = window
        self._send = send  # called after `in_flight` got the run
        self._settings = settings
        self._few_in_flight = few_in_flight
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._loop = asyncio.get_running_loop()
        self._full: deque[Gathered] = deque()
        self._filling = Gathered()
        self._is_sending = False
        self._is_scheduled = False
        self._linger_timer: asyncio.Handle | None = None
        self._idle: deque[asyncio.Future[None]] = deque()
        self._room: deque[asyncio.Future[None]] = deque()

    @property
    def is_lingering(self) -> bool:
        """Whether queued appends wait for further appends.

        If so, a timer sends them after `linger_ms`.
        """
        return self._linger_timer is not None

    @property
    def has_backlog(self) -> bool:
        """Whether the settings' backlog is full."""
        return self._exceeds(1)

    # --- appends ---

    def append(self, payload: Payload, *, at_once: bool = False) -> asyncio.Future[Any]:
        """Append one checked payload, and return the future of its result.

        If `at_once` is true, this call also sends the payload if the window and the linger allow
        it. If `at_once` is false, the payload is sent in the next iteration of the event loop, or
        later.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._admits(future):
            self.add(payload, future)
            self._send_soon(at_once=at_once)
        return future

    def append_batch(
        self, payloads: Sequence[Payload], *, at_once: bool = False
    ) -> asyncio.Future[Any]:
        """Append several checked payloads like `append`, and return one future for their result."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not payloads:
            future.set_result(self.nothing)
        elif self._admits(future):
            self.add_batch(payloads, future)
            self._send_soon(at_once=at_once)
        return future

    def add(self, payload: Payload, waiter: Waiter) -> None:
        """Queue one checked payload. The next `send_now` may send the payload."""
        size = len(payload)
        if self.refusal is not None:
            self._refuse(waiter, 1, size)
            return
        run = self._filling
        if run.size_bytes + size > self._size_bytes_max and run.payloads:
            run = self._cut()
        run.waiters.append((waiter, len(run.payloads), 0))
        run.payloads.append(payload)
        run.size_bytes += size
        self.entries += 1
        self.size_bytes += size
        if len(run.payloads) >= self._entries_max:
            self._cut()

    def add_batch(self, payloads: Sequence[Payload], waiter: Waiter) -> None:
        """Queue a batch of one or more checked payloads, which may be divided into several runs."""
        count = len(payloads)
        size = sum(map(len, payloads))
        if self.refusal is not None:
            self._refuse(waiter, count, size)
            return
        run = self._filling
        if run.payloads and not self._fits(run, count, size):
            run = self._cut()
        if self._fits(run, count, size):
            run.payloads.extend(payloads)
            run.size_bytes += size
        else:
            run = self._spread(payloads)
        run.waiters.append((waiter, len(run.payloads) - 1, count))
        self.entries += count
        self.size_bytes += size
        if len(run.payloads) >= self._entries_max:
            self._cut()

    async def drain(self) -> None:
        """Wait until the unsent appends are below the backlog limit, or appends are refused."""
        while self.has_backlog and self.refusal is None:
            await self._wait_in(self._room)

    async def flush(self) -> None:
        """Wait until all appends are acknowledged or have failed, including later appends."""
        while self.entries or self.in_flight:
            self.send_now()
            if self.entries or self.in_flight:
                await self._wait_in(self._idle)

    # --- sending ---

    def send_now(self) -> None:
        """Send the queued appends, as far as the window and the linger allow it."""
        if self._is_sending:
            return
        if self.entries:
            self._send_runs()
        if not self.entries:
            if self._linger_timer is not None:
                self._stop_linger()
        elif self._linger_timer is None and self._window.can_add:
            self._linger_timer = self._loop.call_later(
                self._settings.linger_ms / 1e3, self._on_linger_over
            )
        if self._room and not self.has_backlog:
            _wake(self._room)

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Set the results of futures, in the order of the list.

        The owner must first remove the runs of these appends from `in_flight`.
        """
        if self.listener is not None:
            self.listener.complete(results)
        else:
            for waiter, result in results:
                if not waiter.done():
                    waiter.set_result(result)
        if self._idle and not self.entries and not self.in_flight:
            _wake(self._idle)

    def fail(self, error: LedgerLogError, *, unknown: range | None = None) -> None:
        """Set an error as the result of each pending append. The owner must first set `refusal`.

        Appends that may have been stored fail with `error`, and the other appends with the error of
        `refusal`. If a part of a batch may have been stored, the whole batch fails with `error`.
        `unknown` contains the indexes in `in_flight` of the runs that may have been stored. If
        `unknown` is None, all runs in flight may have been stored.
        """
        assert self.refusal is not None
        self._stop_linger()
        sent = len(self.in_flight)
        runs = [*self.in_flight, *self._full]
        if self._filling.payloads:
            runs.append(self._filling)
        self.in_flight.clear()
        self._full.clear()
        self._filling = Gathered()
        self.entries = self.size_bytes = 0
        begins_unknown = True  # the first run may continue a batch that was stored in part
        for place, run in enumerate(runs):
            is_unknown = place < sent if unknown is None else place in unknown
            has_unknown_part = run.continues and begins_unknown
            run.fail(error if is_unknown or has_unknown_part else self.refusal())
            begins_unknown = is_unknown or (has_unknown_part and not run.waiters)
            if place >= sent and self.listener is not None:
                self.listener.on_sent(len(run.payloads), run.size_bytes)
        _wake(self._idle)
        _wake(self._room)

    def _send_runs(self) -> None:
        self._is_sending = True
        try:
            while self.entries and self._window.can_add:
                if self._full:
                    self._send_run(self._full.popleft())
                elif len(self.in_flight) < self._few_in_flight:
                    self._send_filling()
                else:
                    break
        finally:
            self._is_sending = False

    def _send_filling(self) -> None:
        run, self._filling = self._filling, Gathered()
        self._send_run(run)

    def _send_run(self, run: Gathered) -> None:
        entries, size_bytes = len(run.payloads), run.size_bytes
        self.entries -= entries
        self.size_bytes -= size_bytes
        self.in_flight.append(run)
        self._send(run)
        if self.listener is not None:
            self.listener.on_sent(entries, size_bytes)

    def _send_soon(self, *, at_once: bool) -> None:
        if at_once:
            self.send_now()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_turn_over)

    def _on_turn_over(self) -> None:
        self._is_scheduled = False
        self.send_now()

    def _on_linger_over(self) -> None:
        self._linger_timer = None
        if self.entries and self._window.can_add and not self._full:
            self._is_sending = True
            try:
                self._send_filling()
            finally:
                self._is_sending = False
        self.send_now()

    def _stop_linger(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # --- runs and limits ---

    def _cut(self) -> Gathered:
        self._full.append(self._filling)
        self._filling = Gathered()
        return self._filling

    def _spread(self, payloads: Sequence[Payload]) -> Gathered:
        run = self._filling
        for place, payload in enumerate(payloads):
            if run.payloads and not self._fits(run, 1, len(payload)):
                run = self._cut()
                run.continues = place > 0
            run.payloads.append(payload)
            run.size_bytes += len(payload)
        return run

    def _fits(self, run: Gathered, count: int, size_bytes: int) -> bool:
        return (
            len(run.payloads) + count <= self._entries_max
            and run.size_bytes + size_bytes <= self._size_bytes_max
        )

    def _exceeds(self, backlogs: int) -> bool:
        """Whether the queued appends reach `backlogs` times the settings' backlog."""
        settings = self._settings
        return (
            self.entries >= backlogs * settings.backlog_entries_max
            or self.size_bytes >= backlogs * settings.backlog_size_bytes_max
        )

    def _admits(self, future: asyncio.Future[Any]) -> bool:
        """Return whether one more append is accepted.

        If not, set an error as the result of `future`.
        """
        if not self._exceeds(BACKLOGS_MAX):
            return True
        future.set_exception(
            LocalProtocolError(
                f"{self.entries:,} appends of {self.size_bytes:,} bytes wait to be sent: await "
                "drain() between appends",
                entries=self.entries,
                size_bytes=self.size_bytes,
            )
        )
        return False

    def _refuse(self, waiter: Waiter, entries: int, size_bytes: int) -> None:
        assert self.refusal is not None
        waiter.set_exception(self.refusal())
        if self.listener is not None:
            self.listener.on_sent(entries, size_bytes)

    async def _wait_in(self, line: deque[asyncio.Future[None]]) -> None:
        """Wait until `_wake` wakes this waiter. A cancelled waiter is removed from `line`."""
        woken: asyncio.Future[None] = self._loop.create_future()
        line.append(woken)
        try:
            await forever(woken, PENDING_ENDS)
        finally:
            with contextlib.suppress(ValueError):
                line.remove(woken)


def _wake(line: deque[asyncio.Future[None]]) -> None:
    while line:
        future = line.popleft()
        if not future.done():
            future.set_result(None)
