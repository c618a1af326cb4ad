"""One process: a session, and the shipped hosts on it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.committing.stream_ledgers import StreamLedgers
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.metadata.stores import MetadataStores
from tests.sim.log.hosts.ledgers import SimLedgers
from tests.sim.log.hosts.tree import SimTree

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ledgerlog_spark.log.leader.leader import Leader

CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)
"""The process whose code runs now, which selects the wall clock."""


class Process:
    """A program that uses logs.

    Attributes:
        skew_ms: Time by which its wall clock is ahead of the clock of the store.
    """

    def __init__(
        self, world: Any, name: str, *, skew_ms: int = 0, ledgers_of: Any = SimLedgers
    ) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.tree = SimTree(world)
        self.stores = MetadataStores.on(self.tree, world.root)
        self.store = self.stores.logs
        self.ledgers = ledgers_of(world, self.tree, self.stores)
        self.logs = Logs(store=self.store, ledgers=self.ledgers, random=world.random)
        self.known = KnownLogs()
        services = SimpleNamespace(logs=self.store, leases=self.stores.leases, random=world.random)
        self.client: Any = self.ledgers
        self.client.services = services
        self.open: dict[tuple[str, str, str], int] = {}
        """Ledgers that streams of this process continue to write, by log, app and run."""
        self.streams = StreamLedgers()
        self.upkeep: Any = None
        """The upkeep of this process, with the state that its passes remember."""
        self.leaders: list[Leader] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_crashed(self) -> bool:
        return self.tree.is_dead

    def spawn(self, what: str, work: Awaitable[None]) -> None:
        """Run an actor to its end. The world checks an error that the actor does not catch."""

        async def run() -> None:
            CURRENT.set(self)
            try:
                await work
            except LedgerLogError as error:
                if not self.has_crashed:
                    raise self.world.violation(f"{what} ended with {error!r}") from error

        task = asyncio.ensure_future(run())
        self._tasks.append(task)
        self.world.watch(what, task)

    def crash(self) -> None:
        """Stop everything in the process. Its last requests may still arrive."""
        self.world.counts["crashes"] += 1
        self.tree.crash()
        for task in self._tasks:
            task.cancel()
        for leader in self.leaders:
            leader._host.stop()


async def sleep(process: Process, first_ms: int, last_ms: int) -> None:
    await asyncio.sleep(process.world.random.randint(first_ms, last_ms) / 1e3)
