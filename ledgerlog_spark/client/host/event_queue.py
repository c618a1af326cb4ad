"""The base class of machines' hosts.

It gives the machine one event at a time, and runs timers and tasks. If an event arrives while
`handle` of the machine runs, the event waits until `handle` has returned. An exception in a machine
is a bug of ledgerlog. The host reports the exception once, together with the last events, and never
calls the machine again. For some errors of the metadata store, such as a refusal by an access list,
there is no reply event. Such an error also ends the machine. The host reports the error with its
type and message, but never as definite.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ledgerlog_spark.errors import InternalError, LedgerLogError
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired

E = TypeVar("E")
"""The events of a machine; `TimerFired` is always one of these events."""

EVENTS_KEPT = 50
"""Maximum number of events in an `InternalError`, which contains the last events."""

TIMER_JITTER = 0.1
"""Maximum fraction by which a host lengthens a timer of a machine at random, so that clients do not
act at the same time."""


class Machine(Protocol):
    """The method that all machines of the protocol have."""

    def handle(self, event: Any, /) -> Sequence[Any]:
        """Handle one event, and return the effects."""


class EventQueue(ABC, Generic[E]):
    """The events of one machine. All methods must be called on the event loop's thread.

    An error in the machine or in an effect ends the machine. In this case, `on_crash` is called
    once with the error. `subject` names the machine in the message, and `about` contains the fields
    of the error. `on_settled` is called each time after the last queued event was handled.
    """

    _briefs: ClassVar[Mapping[type, Callable[[Any], object]]] = {}
    """Functions that return a short text for an error report, by the type of an event with
    payloads."""

    def __init__(
        self,
        machine: Machine,
        *,
        subject: str,
        about: dict[str, Any],
        random: Random,
        on_crash: Callable[[LedgerLogError], None],
        on_settled: Callable[[], None] | None,
    ) -> None:
        self.crash: LedgerLogError | None = None
        """The error that ended the machine: a bug, or an error that no machine can handle."""
        self.is_stopped = False
        """Whether events are no longer accepted."""
        self._machine = machine
        self._subject = subject
        self._about = about
        self._random = random
        self._on_crash = on_crash
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._queue: deque[E | TimerFired] = deque()
        self._is_running = False
        self._history: deque[object] = deque(maxlen=EVENTS_KEPT)
        self._timers: dict[int, asyncio.Handle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, event: E | TimerFired) -> None:
        """Give the machine an event after the events that are already queued."""
        if self.is_stopped:
            return
        self._queue.append(event)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._queue:
                self._step(self._queue.popleft())
        finally:
            self._is_running = False
        if self._on_settled is not None and not self.is_stopped:
            self._on_settled()

    def stop(self) -> None:
        """Stop the machine, so that it gets no more events or timers."""
        self.is_stopped = True
        self._queue.clear()
        self._cancel_timers()

    def _step(self, event: E | TimerFired) -> None:
        brief = self._briefs.get(type(event))
        self._history.append(event if brief is None else brief(event))
        try:
            for effect in self._machine.handle(event):
                self._perform(effect)
        except Exception as error:  # noqa: BLE001 - after any exception, the machine cannot be trusted
            self._fail(error)

    @abstractmethod
    def _perform(self, effect: Any) -> None:
        """Perform one effect. If the effect is an indication, pass it to the application."""

    def _reply(self, event: TimerFired) -> None:
        """Pass the answer to a request to the machine. A subclass may drop unexpected answers."""
        self.post(event)

    def _fail(self, cause: BaseException) -> None:
        if self.is_stopped:
            return
        crash = InternalError(
            f"{self._subject} failed: {type(cause).__name__}: {cause}; this is a bug, please "
            "report it with `events`",
            **self._about,
            events=[self._text(event) for event in self._history],
        )
        crash.__cause__ = cause
        self._end(crash)

    def _end(self, crash: LedgerLogError) -> None:
        self.crash = crash
        self.stop()
        self._on_crash(crash)

    def _text(self, event: object) -> str:
        return str(event)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, LedgerLogError) and not self.is_stopped:
            ended = copy.copy(error)
            ended.definite = False  # any pending operation may have happened
            ended.__cause__ = error
            self._end(ended)
        else:
            self._fail(error)

    def _start_timer(self, effect: StartTimer) -> None:
        delay = effect.delay_ms / 1e3 * (1 + TIMER_JITTER * self._random.random())
        self._timers[effect.request] = self._loop.call_later(delay, self._on_timer, effect.request)

    def _on_timer(self, request: int) -> None:
        self._timers.pop(request, None)
        self._reply(TimerFired(request))

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
