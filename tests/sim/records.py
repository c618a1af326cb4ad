"""The records and locks of ledgers, as a bookie that releases ledgers requests them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from tests.sim.network import Message
from tests.sim.runtime import Host, SimFuture

if TYPE_CHECKING:
    from tests.sim.world import World

ANSWER_MS = 30
"""A request without an answer has failed after this time, and may still arrive."""


class RecordsFromStore:
    """Implements `LedgerRecords` with messages to the simulated store."""

    def __init__(self, world: World, name: str, host: Host) -> None:
        self._world = world
        self._name = name
        self._host = host
        self._sent = self._delivered = 0
        self._left: set[int] = set()  # locks that may be held after a failure

    async def lock(self, ledger_id: int) -> bool:
        answer = await self._ask("lock", lambda: self._world.store.lock(ledger_id, self._host))
        self._note(ledger_id, is_left=answer is None)
        return answer is True

    async def unlock(self, ledger_id: int) -> None:
        def act() -> bool:
            self._world.store.unlock(ledger_id, self._host)
            return True

        self._note(ledger_id, is_left=await self._ask("unlock", act) is None)

    async def release_left(self) -> None:
        for ledger_id in sorted(self._left):
            await self.unlock(ledger_id)

    def _note(self, ledger_id: int, *, is_left: bool) -> None:
        if is_left:
            self._left.add(ledger_id)
        else:
            self._left.discard(ledger_id)

    async def peek(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        return await self._load(ledger_id, is_synced=False)

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        return await self._load(ledger_id, is_synced=True)

    async def touch(self, ledger_id: int, version: Version) -> bool:
        store = self._world.store

        def write() -> bool:
            record = store.records.get(ledger_id)
            if record is None or record.version != version:
                return False
            outcome, _ = store.write(self._name, ledger_id, record.value, version)
            return outcome is MetadataOutcome.OK

        return await self._ask("touch", write) is True

    async def _load(self, ledger_id: int, *, is_synced: bool) -> Versioned[LedgerMetadata] | None:
        name = f"{self._host.name} {self._world.scheduler.now_us}"
        found = await self._ask(
            "bookie_load",
            lambda: self._world.store.load(ledger_id, is_synced=is_synced, name=name),
        )
        return found if isinstance(found, Versioned) else None

    async def _ask(self, kind: str, act: Callable[[], Any]) -> Any:
        """Return the answer of the store, or None after a time-out."""
        answered: SimFuture[Any] = self._host.future()
        network = self._world.network
        self._sent += 1
        number = self._sent

        def arrive() -> None:
            if number < self._delivered:
                return  # A session delivers its requests in order: this one was lost.
            self._delivered = number
            answer = act()
            back = Message(f"{kind}_reply", "zk", self._name, lambda: resolve(answered, answer))
            network.send(back)

        network.send(Message(kind, self._name, "zk", arrive))
        self._host.call_later(ANSWER_MS * 1_000, lambda: resolve(answered, None))
        return await answered
