"""Ledgers that processes write entry by entry. Acknowledgements come late, in order, or never."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.log.committing import range_writer
from tests.sim.log.checks import INDEX

if TYPE_CHECKING:
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.model import LedgerMetadata
    from tests.sim.log.hosts.ledgers import SimLedgers

ACK_MS_MAX = 25
ENTRY_SIZE_BYTES = 20


def payload_of(name: int) -> bytes:
    """Return the payload of the entry with this name; `INDEX` is an index entry."""
    return name.to_bytes(ENTRY_SIZE_BYTES, "big")


class SimWriter:
    """The handle of the only writer of a ledger, like that of the client.

    Entry 0 is the schema message. Entries on their ack quorum are in the `Ledger` of the world. A
    seal may also find some of the other entries.
    """

    def __init__(self, ledgers: SimLedgers, ledger_id: int) -> None:
        self.id = ledger_id
        self.ranges: list[tuple[int, int]] = []
        """Batch and size in bytes of each finished range."""
        self._ledgers = ledgers
        self._world = ledgers.world
        self._ledger = ledgers.world.ledgers[ledger_id]
        self._pending: deque[tuple[asyncio.Future[int], bytes]] = deque()
        self._acked = 0
        self._is_armed = False
        self._is_closed = False
        self._error: LedgerLogError | None = None
        self._made_s = self._world.loop.time()
        ledgers.world.writers[ledger_id] = self

    @property
    def age_ms(self) -> float:
        """The age of the ledger, for its writer."""
        return (self._world.loop.time() - self._made_s) * 1e3

    @property
    def is_writable(self) -> bool:
        return self._error is None and not self._is_closed

    def append_async(self, payload: Any) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._world.loop.create_future()
        if not self.is_writable:
            future.set_exception(self._error or LedgerClosedError("closed", ledger_id=self.id))
            return future
        entries = [each for _, each in self._pending if len(each) == ENTRY_SIZE_BYTES]
        size_bytes = len(entries) * ENTRY_SIZE_BYTES
        is_bounded = size_bytes <= range_writer.PENDING_SIZE_BYTES_MAX
        self._world.require(is_bounded, f"{size_bytes} bytes wait to be acknowledged")
        self._pending.append((future, bytes(payload)))
        self._arm()
        return future

    async def close(self) -> LedgerMetadata:
        """Close the ledger after its last append, unless it is sealed by another process."""
        await self._ledgers.tree.pause()
        self._is_closed = True
        if self._ledger.sealed_at is None:
            self._world.require(
                not self._pending, f"ledger {self.id} is closed while it is written"
            )
            self._ledger.sealed_at = self._ledger.last
        elif self._pending:
            raise LedgerFencedError("somebody recovers it", ledger_id=self.id)
        return await self._ledgers.ledger_metadata(self.id)

    def abandon(self) -> None:
        self._is_closed = True

    def be_recovered(self) -> None:
        """Seal the ledger. The seal may find unacknowledged entries, from the first one on."""
        found = self._world.random.randint(0, len(self._pending))
        for _, payload in list(self._pending)[:found]:
            self._store(payload)

    # --- what the bookies do ---

    def _arm(self) -> None:
        if self._pending and not self._is_armed:
            self._is_armed = True
            delay_ms = self._world.random.randint(1, ACK_MS_MAX)
            self._world.loop.call_later(delay_ms / 1e3, self._answer)

    def _answer(self) -> None:
        self._is_armed = False
        if self._ledgers.tree.is_dead or (self._is_closed and self._ledger.sealed_at is None):
            return  # no one waits for the answer
        if self._ledger.sealed_at is not None:
            self._break(LedgerFencedError("somebody recovers it", ledger_id=self.id))
        elif self._world.is_faulty and self._world.random.random() < 0.01:
            self._ledgers.tree.faults += 1
            self._world.counts["ledgers broken"] += 1
            self._break(NotEnoughBookiesError("a bookie failed", wanted=3, available=2))
        else:
            for _ in range(self._world.random.randint(1, len(self._pending))):
                self._acknowledge()
            self._arm()

    def _acknowledge(self) -> None:
        future, payload = self._pending.popleft()
        self._store(payload)
        if not future.done():
            future.set_result(self._acked)
        self._acked += 1

    def _store(self, payload: bytes) -> None:
        if len(payload) == ENTRY_SIZE_BYTES:
            self._ledger.entries.append(int.from_bytes(payload, "big"))
        else:
            self._ledger.schema = payload

    def _break(self, error: LedgerLogError) -> None:
        self._error = error
        while self._pending:
            future, _ = self._pending.popleft()
            if not future.done():
                future.set_exception(error)


def require_range(world: Any, staged: Any, names: list[int]) -> None:
    """Check that a finished range describes its ledger, and that its entries are acknowledged."""
    ledger = world.ledgers[staged.ledger_id]
    held = ledger.entries[staged.first_entry_id - 1 : staged.last_entry_id]
    rows = [name for name in held if name != INDEX]
    world.require(rows == names, f"{staged} holds {rows}, and {names} were written")
    size_bytes = len(held) * ENTRY_SIZE_BYTES
    world.require(staged.size_bytes == size_bytes, f"{staged} has {size_bytes} bytes")
