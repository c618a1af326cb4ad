"""One process: a session, the shipped hosts on it, and ledgers that are not simulated here."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, LedgerRecoveryError
from ledgerlog_spark.log.known_logs import KnownLogs
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol import log_seal
from tests.sim.log.hosts.tree import SimTree

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.sim.log.hosts.world import HostWorld

METADATA = LedgerMetadata(
    quorum=Quorum(3, 3, 2), fragments=(Fragment(0, ("a:1", "b:1", "c:1")),), token=77
)

CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)
"""The process whose code runs, for the wall clock that it reads."""


class SimLedgers:
    """The part of a client that the log layer needs of ledgers; their records are in the store."""

    def __init__(self, world: HostWorld, tree: SimTree, stores: MetadataStores) -> None:
        self._world = world
        self._tree = tree
        self._stores = stores

    def check_open(self) -> None:
        return

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        found = (await self._stores.ledgers.load(ledger_id)).value
        ledger = self._world.ledgers[ledger_id]
        if ledger.sealed_at is None or found.is_closed:
            return found
        return found.closed(last_entry_id=ledger.sealed_at, length=100)

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = -1
    ) -> LedgerMetadata:
        """Finds all that was acknowledged, unless bookies are missing."""
        del password
        world, ledger = self._world, self._world.ledgers[ledger_id]
        metadata = await self.ledger_metadata(ledger_id)
        if ledger.sealed_at is None:
            if world.is_faulty and world.random.random() < 0.1:
                world.counts["seals failed"] += 1
                self._tree.faults += 1
                raise LedgerRecoveryError("too few bookies answered", ledger_id=ledger_id)
            log_seal.check_close(
                ledger_id, last_entry_id=ledger.last, floor_entry_id=floor_entry_id
            )
            ledger.sealed_at = ledger.last
        return metadata.closed(last_entry_id=ledger.sealed_at, length=100)

    async def delete_ledger(self, ledger_id: int) -> None:
        await self._stores.ledgers.delete(ledger_id)


class Process:
    """A program that uses logs.

    Attributes:
        skew_ms: How far its wall clock is ahead of the store's.
    """

    def __init__(self, world: HostWorld, name: str, *, skew_ms: int = 0) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.tree = SimTree(world)
        self.stores = MetadataStores.on(self.tree, world.root)
        self.store = self.stores.logs
        self.ledgers = SimLedgers(world, self.tree, self.stores)
        self.logs = Logs(store=self.store, ledgers=self.ledgers, random=world.random)  # type: ignore[arg-type]
        self.known = KnownLogs()
        services = SimpleNamespace(logs=self.store, leases=self.stores.leases, random=world.random)
        self.client: Any = self.ledgers
        self.client.services = services
        self.open: dict[tuple[str, str, str], int] = {}
        """Ledgers that streams of this process go on with, by log, app and run."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_crashed(self) -> bool:
        return self.tree.is_dead

    def spawn(self, what: str, work: Awaitable[None]) -> None:
        """Run an actor until its end; an error that escapes it is judged by the world."""

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
        """Nothing of it goes on; what it sent last may arrive still."""
        self.world.counts["crashes"] += 1
        self.tree.crash()
        for task in self._tasks:
            task.cancel()
