"""A cluster inside one event loop, and the clients of this cluster."""

from __future__ import annotations

from random import Random
from typing import Self

from ledgerlog_spark.client.arguments import check_optional, check_type
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.stores import ROOT, MetadataStores
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.in_process import InProcessTransport
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.wire.cookie import Cookie


def memory_metadata(nodes: MemoryNodes | None = None, *, root: str = ROOT) -> MetadataStores:
    """Return the metadata stores of a cluster in memory, with a new session.

    Args:
        nodes: The nodes of the cluster. Sessions with the same nodes share a cluster. If it is
            None, a new cluster is created.
        root: Path of the cluster's root node.
    """
    return MetadataStores.on(MemoryTree(nodes), root)


class MemoryCluster:
    """Bookies and metadata in memory, for the event loop that runs the `async with` statement.

    No data is durable. All data is lost when the statement ends. A stopped bookie keeps its data
    until the end of the statement. The memory use of the cluster has no limit, because a bookie
    accepts every add and never deletes an entry. The cluster has no URI, so Spark and other
    processes cannot connect to it.

    Attributes:
        bookies: The storages of the running bookies, by bookie id. A test may remove a stored
            entry, to simulate its loss.
        nodes: The nodes of the metadata store.
    """

    def __init__(self, bookies: int = 3) -> None:
        """Create a cluster, which the `async with` statement starts.

        Args:
            bookies: Number of writable bookies. Their ids are `bookie-0`, `bookie-1` and so on. A
                ledger needs as many bookies as its ensemble size, which is 3 by default.
        """
        check_type("bookies", bookies, int)
        self.bookies = {f"bookie-{number}": MemoryStorage() for number in range(bookies)}
        self.nodes = MemoryNodes()
        self._stopped: dict[str, MemoryStorage] = {}
        self._clients: list[LogClient] = []
        self._session: MetadataStores

    async def __aenter__(self) -> Self:
        self._session = memory_metadata(self.nodes)
        await self._session.initialize()
        for bookie_id in self.bookies:
            await self._write_cookie(bookie_id)
            await self._register(bookie_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.aclose()
        await self._session.close()

    def client(self, settings: ClientSettings | None = None, *, seed: int = 0) -> LogClient:
        """Return a client on the event loop of the cluster.

        The end of the cluster closes the client.

        Args:
            settings: Time-outs and limits; if it is None, the defaults are used.
            seed: Seed of the random numbers for the choice of bookies and for the pauses before
                retries.

        Raises:
            RuntimeError: No event loop is running.
        """
        check_optional("settings", settings, ClientSettings)
        stores = memory_metadata(self.nodes)
        transport = InProcessTransport(self.bookies)

        async def close() -> None:
            await transport.aclose()
            await stores.close()

        random = Random(seed)  # noqa: S311 - for placement and jitter, not for secrets
        services = Services.on(stores, transport, settings or ClientSettings(), random)
        client = LogClient(services, on_close=close)
        self._clients.append(client)
        return client

    async def stop_bookie(self, bookie_id: str) -> None:
        """Make a bookie unreachable for all clients of the cluster. The bookie keeps its entries.

        Args:
            bookie_id: A key of `bookies`.

        Raises:
            KeyError: The bookie does not exist, or is already stopped.
        """
        self._stopped[bookie_id] = self.bookies.pop(bookie_id)
        await self._session.registration.unregister(bookie_id)

    async def start_bookie(self, bookie_id: str) -> None:
        """Start a stopped bookie again.

        If no bookie with this id was stopped, start an empty bookie.

        Args:
            bookie_id: The id of the bookie. If a bookie with this id is running, an empty bookie
                replaces it, and its entries are lost.

        Raises:
            ConfigurationError: No bookie can have this id. Nothing was changed.
        """
        checked_bookie_id(bookie_id)
        stopped = self._stopped.pop(bookie_id, None)
        if stopped is None:
            await self._write_cookie(bookie_id)
        self.bookies[bookie_id] = stopped or MemoryStorage()
        await self._register(bookie_id)

    async def _write_cookie(self, bookie_id: str) -> None:
        """Write a cookie for a bookie without entries, which gives the bookie a new identity."""
        registration = self._session.registration
        held = await registration.read_cookie(bookie_id)
        cookie = Cookie(bookie_id, "memory", ("memory",)).encode()
        await registration.write_cookie(bookie_id, cookie, held.version if held else None)

    async def _register(self, bookie_id: str) -> None:
        await self._session.registration.register(BookieInfo(bookie_id, "127.0.0.1", 3181))


def connect_in_memory(
    bookies: int = 3, settings: ClientSettings | None = None
) -> BlockingLogClient:
    """Return a blocking client of a new cluster in memory.

    The cluster belongs to this client. When the client is closed, also by a `with` statement, the
    cluster ends and its data is lost. To stop bookies, or to connect several clients, use
    `MemoryCluster`.

    Args:
        bookies: Number of bookies. A ledger needs as many bookies as its ensemble size, which is 3
            by default.
        settings: Time-outs and limits; if it is None, the defaults are used.
    """

    async def connected() -> LogClient:
        cluster = await MemoryCluster(bookies).__aenter__()
        services = cluster.client(settings).services
        return LogClient(services, on_close=cluster.__aexit__)

    return BlockingLogClient(connected)
