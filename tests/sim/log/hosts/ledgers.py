"""Ledgers of transactional logs: records in the store, entries by name, no quorums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.handles.creation import LedgerSpec, check_ledger_password
from ledgerlog_spark.errors import LedgerNotFoundError, LedgerRecoveryError
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from tests.sim.log import sealing
from tests.sim.log.hosts.writers import SimWriter
from tests.sim.log.world import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from ledgerlog_spark.client.handles.creation import CreateRecord
    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.sim.log.hosts.tree import SimTree
    from tests.sim.log.hosts.world import HostWorld

BATCH_ENTRIES = 3


def metadata_of(
    ledger_id: int, *, password: bytes = b"", custom: dict[str, bytes] | None = None
) -> LedgerMetadata:
    """Return the metadata of a new ledger, with a new token."""
    return LedgerMetadata(
        quorum=Quorum(3, 3, 2),
        fragments=(Fragment(0, ("a:1", "b:1", "c:1")),),
        token=ledger_id + 1_000,
        password=password,
        custom=custom or {},
    )


class SimReader:
    """A handle that reads a ledger. Its user gave the right password."""

    def __init__(self, ledgers: SimLedgers, ledger_id: int) -> None:
        self.id = ledger_id
        self._ledgers = ledgers

    async def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
        place: object = None,
        slices: object = None,
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield the names of entries, a few at a time."""
        assert is_listed
        assert place is None, "bounds of several readers are the client's"
        assert slices is None, "parts of entries are the client's"
        assert last_entry_id is not None
        while first_entry_id <= last_entry_id:
            await self._ledgers.tree.pause()
            end = min(first_entry_id + BATCH_ENTRIES, last_entry_id + 1)
            ledger = self._ledgers.world.ledgers[self.id]
            if ledger.is_deleted:
                raise LedgerNotFoundError("it is gone", ledger_id=self.id)
            names = ledger.entries[first_entry_id - 1 : end - 1]
            yield [
                SimpleNamespace(entry_id=number, payload=name)
                for number, name in enumerate(names, first_entry_id)
            ]
            first_entry_id = end

    async def aclose(self) -> None:
        """Do nothing, because the handle has no resources."""


class SimLedgers:
    """The part of a client that the log layer needs of ledgers; their records are in the store."""

    def __init__(self, world: HostWorld, tree: SimTree, stores: MetadataStores) -> None:
        self.world = world
        self.tree = tree
        self._stores = stores
        self._listed: dict[int, int] = {}
        """The last listed entry of a ledger at some time before its next seal began."""
        self.services: Any = None

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        """Never call `on_closed`: the processes crash, but do not close a client."""
        del on_closed
        return lambda: None

    def check_open(self) -> None:
        return

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        ids = await self._stores.ledgers.new_ids(count)
        self.world.check_ids(ids)
        return ids

    async def create_registered_ledger(
        self,
        create: CreateRecord,
        spec: LedgerSpec,
        *,
        ledger_id: int | None = None,
    ) -> SimWriter:
        """Create a ledger as the client does, without a request to a bookie before entry 0."""
        if ledger_id is None:
            (ledger_id,) = await self.new_ledger_ids(1)
        self.world.made[ledger_id] = Ledger(password=spec.password)
        metadata = metadata_of(
            ledger_id, password=spec.password, custom=dict(spec.custom_metadata or {})
        )
        await create(ledger_id, metadata)
        return SimWriter(self, ledger_id)

    async def list_ledgers(self) -> AsyncIterator[int]:
        async for ledger_id in self._stores.ledgers.ids():
            yield ledger_id

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read the metadata as the client does. A seal calls this before it reads the list."""
        found = await self._metadata(ledger_id)
        listed = self.world.listed_last(ledger_id)
        self._listed[ledger_id] = min(listed, self._listed.get(ledger_id, listed))
        return found

    async def _metadata(self, ledger_id: int) -> LedgerMetadata:
        try:
            found = (await self._stores.ledgers.load(ledger_id)).value
        except LedgerNotFoundError:  # as in the client: only certain after a sync
            await self._stores.ledgers.sync()
            found = (await self._stores.ledgers.load(ledger_id)).value
        ledger = self.world.ledgers[ledger_id]
        if ledger.sealed_at is None or found.is_closed:
            return found
        return found.closed(last_entry_id=ledger.sealed_at, length=100)

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        is_listed: bool = False,
        may_be_outdated: bool = False,
    ) -> SimReader:
        del is_listed, may_be_outdated
        check_ledger_password(ledger_id, await self._metadata(ledger_id), password)
        return SimReader(self, ledger_id)

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = -1
    ) -> LedgerMetadata:
        """Seal a ledger. All acknowledged entries are found, unless bookies are missing."""
        world, ledger = self.world, self.world.ledgers[ledger_id]
        listed = self._listed.pop(ledger_id, -1)
        metadata = await self._metadata(ledger_id)
        check_ledger_password(ledger_id, metadata, password)
        if ledger.sealed_at is None:
            probability = 0.1 if world.views[world.log_of[ledger_id]].deleted_at_ms is None else 0.3
            if world.is_faulty and world.random.random() < probability:
                world.counts["seals failed"] += 1
                self.tree.faults += 1
                raise LedgerRecoveryError("too few bookies answered", ledger_id=ledger_id)
            writer = world.writers.get(ledger_id)
            if writer is not None:
                writer.be_recovered()
            last_entry_id = self._found(ledger_id, listed)
            sealing.check_close(
                ledger_id, last_entry_id=last_entry_id, floor_entry_id=floor_entry_id
            )
            ledger.sealed_at = last_entry_id
            world.check_closed(ledger_id)
        return metadata.closed(last_entry_id=ledger.sealed_at, length=100)

    def _found(self, ledger_id: int, listed_before: int) -> int:
        """Return the last entry that a seal finds, which may miss the last listed entry.

        The missing bookies may be those with the last listed entry. But this entry must have been
        listed before the seal began: the list was read after that, so the floor must cover it. Of
        other entries, it is not known here which are acknowledged, so all of them are found.
        """
        world, last = self.world, self.world.ledgers[ledger_id].last
        is_listed = last == min(listed_before, world.listed_last(ledger_id))
        if world.is_faulty and is_listed and world.random.random() < 0.2:
            world.counts["seals that miss entries"] += 1
            self.tree.faults += 1
            return last - 1
        return last

    async def delete_ledger(self, ledger_id: int) -> None:
        await self._stores.ledgers.delete(ledger_id)
