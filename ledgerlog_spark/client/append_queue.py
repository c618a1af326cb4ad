"""Appends of one writer, from their call until they are acknowledged or failed.

`AppendQueue` gathers appends into runs, decides when a run is sent, bounds the waiting appends, and
completes or fails them. Its owner, the handle of a ledger or the leader of a log, gives each run to
its machine and reports the outcome. All methods must be called on the thread of the event loop.
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
"""Multiple of the settings' backlog that may wait to be sent; beyond it appends are refused."""

PENDING_ENDS = "`WriterSettings.add_quorum_timeout_ms` ends pending appends"


class Waiter(Protocol):
    """The part of a future that an append completes, common to asyncio and concurrent futures."""

    def done(self) -> bool:
        """Whether it was completed or cancelled."""

    def set_result(self, result: Any, /) -> None:
        """Complete it."""

    def set_exception(self, exception: Any, /) -> None:
        """Fail it."""


class AppendListener(Protocol):
    """Receives the progress of a write handle, such as its blocking API in another thread."""

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """These numbers of entries and payload bytes have left the queue."""

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Give futures their results, in order."""


class RunMachine(Protocol):
    """The part of a machine that bounds the runs in flight."""

    @property
    def can_add(self) -> bool:
        """Whether the machine accepts one more run now."""


class Gathered:
    """Payloads of one run in the order of their appends, and the appends that end in it."""

    __slots__ = ("body", "continues", "payloads", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        # (future, offset of the append's last payload in the run, entries of a batch or 0)
        self.waiters: list[tuple[Waiter, int, int]] = []
        self.size_bytes = 0  # of the payloads
        self.continues = False  # the first payload belongs to a batch that began in the last run
        self.body: Any = None  # free for the owner: a leader keeps the entry here

    def results(self, first_entry_id: int) -> list[tuple[Any, Any]]:
        """Each append's future, and its entry id or the range of ids of its batch."""
        first = first_entry_id
        return [
            (waiter, range(first + offset - batch + 1, first + offset + 1))
            if batch
            else (waiter, first + offset)
            for waiter, offset, batch in self.waiters
        ]

    def fail(self, error: LedgerLogError) -> None:
        """Fail each append that ends here."""
        for waiter, _, _ in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class AppendQueue:
    """Appends in order, cut into runs of a bounded size (or one larger entry).

    Appends within one turn of the loop are sent together. A run with room for more is sent
    immediately while few runs are in flight; otherwise it waits for further appends, at most for
    the linger. With fewer than `few_in_flight` runs in flight nothing lingers.
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
        """An empty queue; the last two arguments are the limits of one run."""
        self.entries = 0
        """Number of entries that wait to be sent."""
        self.size_bytes = 0
        """Payload bytes of the entries that wait to be sent."""
        self.in_flight: deque[Gathered] = deque()
        """Runs that were sent, oldest first; the owner removes a run that is acknowledged."""
        self.refusal: Callable[[], LedgerLogError] | None = None
        """Makes the error of each further append; None while appends are accepted."""
        self.listener: AppendListener | None = None
        """Completes the futures of `add` and `add_batch`; None for asyncio futures."""
        self.nothing = nothing
        """The result of an append of no payloads."""
        self._window = window
        self._send = send  # the run is in `in_flight` then
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
        """Whether appends wait for others, and are sent later without another call."""
        return self._linger_timer is not None

    @property
    def has_backlog(self) -> bool:
        """Whether the settings' backlog is full."""
        return self._exceeds(1)

    # --- appends ---

    def append(self, payload: Payload, *, at_once: bool = False) -> asyncio.Future[Any]:
        """A future of the result of one checked payload.

        With `at_once` it is sent in this call, if the window allows; else at the end of this turn.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._admits(future):
            self.add(payload, future)
            self._send_soon(at_once=at_once)
        return future

    def append_batch(
        self, payloads: Sequence[Payload], *, at_once: bool = False
    ) -> asyncio.Future[Any]:
        """A future of the result of checked payloads; like `append`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not payloads:
            future.set_result(self.nothing)
        elif self._admits(future):
            self.add_batch(payloads, future)
            self._send_soon(at_once=at_once)
        return future

    def add(self, payload: Payload, waiter: Waiter) -> None:
        """Queue one checked payload, which the next `send_now` may send."""
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
        """Queue at least one checked payload; a batch may span runs, and ends with its last."""
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
        """Wait until less than the settings' backlog waits to be sent."""
        while self.has_backlog and self.refusal is None:
            await self._wait_in(self._room)

    async def flush(self) -> None:
        """Wait until nothing is pending: each append so far was acknowledged or failed."""
        while self.entries or self.in_flight:
            self.send_now()
            if self.entries or self.in_flight:
                await self._wait_in(self._idle)

    # --- sending ---

    def send_now(self) -> None:
        """Send queued appends, as far as window and linger allow."""
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
        """Set the results of futures, in order, for runs that were removed from `in_flight`."""
        if self.listener is not None:
            self.listener.complete(results)
        else:
            for waiter, result in results:
                if not waiter.done():
                    waiter.set_result(result)
        if self._idle and not self.entries and not self.in_flight:
            _wake(self._idle)

    def fail(self, error: LedgerLogError, *, unknown: range | None = None) -> None:
        """Fail all pending appends; `refusal` was set before.

        Appends that may have been stored fail with `error`, the others with the refusal. A batch
        may have been stored when one of its parts may have been. `unknown` has the places in
        `in_flight` of the runs that may have been stored; None means all.
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
        begins_unknown = True  # an earlier part of the first run's batch is acknowledged
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
        """Whether this many backlogs of the settings wait to be sent."""
        settings = self._settings
        return (
            self.entries >= backlogs * settings.backlog_entries_max
            or self.size_bytes >= backlogs * settings.backlog_size_bytes_max
        )

    def _admits(self, future: asyncio.Future[Any]) -> bool:
        """Whether there is room for one more append; fails its future if there is none."""
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
        """Wait until `_wake` reaches this waiter; a cancelled waiter leaves the line."""
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
