"""Runs one machine of the audit on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Protocol

from ledgerlog_spark.client.host.event_queue import EventQueue
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.waits import forever

Perform = Callable[[Any], Awaitable[Any]]


class AuditMachine(Protocol):
    """The methods that all machines of the audit have."""

    def begin(self) -> list[Any]:
        """Return the first effects."""
        ...

    def handle(self, event: Any, /) -> list[Any]:
        """Handle one event, and return the effects."""
        ...


class AuditMachineHost(EventQueue[Any]):
    """Runs one machine until it has stepped down.

    Each request is performed in a separate task. Effects without a reply are also performed in
    tasks, but one after another.
    """

    def __init__(
        self,
        machine: AuditMachine,
        requests: Mapping[type, Perform],
        stores: Mapping[type, Perform],
        *,
        random: Random,
        on_indication: Callable[[Any], None],
    ) -> None:
        """Create a host of a machine that has not begun.

        Args:
            machine: The machine, which has not begun.
            requests: For each type of request, a function that returns the reply.
            stores: For each type of effect without a reply, a function that performs the effect.
            random: Source of random numbers for the jitter of timers.
            on_indication: Function that is called with each indication.
        """
        super().__init__(
            machine,
            subject=type(machine).__name__,
            about={},
            random=random,
            on_crash=self._on_crashed,
            on_settled=None,
        )
        self._audit_machine = machine
        self._requests = requests
        self._stores = stores
        self._on_indication = on_indication
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._storing = asyncio.Lock()

    async def run(self) -> None:
        """Run the machine until it has stepped down, or this call is cancelled.

        Raises:
            InternalError: The machine failed, which is a bug.
        """
        try:
            for effect in self._audit_machine.begin():
                self._perform(effect)
            await forever(self._ended, "the machine steps down with its session")
        finally:
            self.stop()
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _perform(self, effect: Any) -> None:
        kind = type(effect)
        if kind is StartTimer:
            self._start_timer(effect)
        elif kind in self._requests:
            self._spawn(self._request(effect))
        elif kind in self._stores:
            self._spawn(self._store(effect))
        elif kind is m.SteppedDown:
            self.stop()
            if not self._ended.done():
                self._ended.set_result(None)
        else:
            self._on_indication(effect)

    async def _request(self, effect: Any) -> None:
        self.post(await self._requests[type(effect)](effect))

    async def _store(self, effect: Any) -> None:
        async with self._storing:
            await self._stores[type(effect)](effect)

    def _on_crashed(self, crash: LedgerLogError) -> None:
        if not self._ended.done():
            self._ended.set_exception(crash)
