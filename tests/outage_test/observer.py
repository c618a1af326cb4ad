"""Reads the stores of the cluster without the proxy that everything else uses."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.replication.election import votes_in
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.tools.recovery_status import RecoveryStatus, recovery_status
from ledgerlog_spark.wire.underreplication import ELECTION
from tests.fixtures.lossy_proxy import LossyProxy
from tests.fixtures.owners import owners

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from ledgerlog_spark.model import Version

T = TypeVar("T")

POLL_SECONDS = 0.1


class Observer:
    """A proxy in front of ZooKeeper, and a session that does not use this proxy.

    Both run on an event loop in a separate thread.

    Attributes:
        proxy: The proxy, which all sessions of the cluster use.
        marked: The id and the version of each mark that was seen.
    """

    proxy: LossyProxy
    _stores: MetadataStores
    _watching: asyncio.Task[None]

    def __init__(self, zookeeper_port: int) -> None:
        self.marked: set[tuple[int, Version]] = set()
        self._port = zookeeper_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="observer")

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set_delay(self, seconds: int) -> None:
        """Set how long auto-recovery waits for one lost bookie."""
        self._run(self._stores.recovery_switch.set_lost_bookie_delay(seconds))

    def block(self, *, is_blocked: bool) -> None:
        """Break all connections of the cluster to ZooKeeper, or allow them again."""
        change = self.proxy.block if is_blocked else self.proxy.unblock
        self._loop.call_soon_threadsafe(change)

    def status(self) -> RecoveryStatus | None:
        """The state of auto-recovery; None if it could not be read."""
        return self._run(_or_none(recovery_status(self._stores)))

    def owners(self, names: Iterable[str]) -> dict[str, int]:
        """The sessions of the bookies that are registered as writable."""
        return self._run(_or_none(owners(self._stores, names))) or {}

    def voters(self) -> list[int]:
        """The sessions with a vote in the election of the auditor, the elected one first."""
        return self._run(_or_none(self._voters())) or []

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _open(self) -> None:
        self.proxy = await LossyProxy(self._port).__aenter__()
        self._stores = await open_metadata(f"zk://127.0.0.1:{self._port}/ledgers")
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await _or_none(self._look())
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        async for ledger_id in self._stores.marks.walk():
            mark = await self._stores.marks.load(ledger_id)
            if mark is not None:
                self.marked.add((ledger_id, mark.version))

    async def _voters(self) -> list[int]:
        tree, directory = self._stores.tree, self._stores.root + ELECTION
        await tree.sync()
        stats = [await tree.stat(f"{directory}/{name}") for name in await votes_in(tree, directory)]
        return [stat.owner for stat in stats if stat is not None]

    async def _close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._stores.close()
        await self.proxy.__aexit__()


async def _or_none(call: Coroutine[Any, Any, T]) -> T | None:
    """The result of a call; None if the store is away."""
    try:
        return await call
    except LedgerLogError:
        return None
