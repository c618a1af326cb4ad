"""Ledgers of leaders: metadata in the store, simulated adds and quorums, and handles like those of
the client."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.errors import (
    EntryNotFoundError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import NO_ENTRY, Code, Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.leader.entry import decode_entry_header
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from tests.sim.leader.ledgers import Entry, SimLedger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.sim.leader.hosts.world import LeaderHosts
    from tests.sim.log.hosts.tree import SimTree

BATCH_ENTRIES = 3
BEHIND_ENTRIES_MAX = 3
SEEN: ContextVar[bool] = ContextVar("SEEN", default=False)
"""Whether the reader proves with records seen before that entries are acknowledged."""
FINISHED: ContextVar[set[int] | None] = ContextVar("FINISHED", default=None)
"""The ledgers that the running tail has followed to their ends; None outside of a tail."""
NEWS_MS_MAX = 90
"""Maximum time from a confirmation to the notification of a follower."""


class SimWriter:
    """A ledger that a process writes. `send_now` sends the added entries."""

    def __init__(
        self,
        client: LeaderLedgers,
        ledger: SimLedger,
        listener: Any,
        on_failed: Callable[[Any], Any],
    ) -> None:
        self.id = ledger.ledger_id
        self.queue = self
        self.ledger = ledger
        self._client = client
        self._listener = listener
        self._on_failed = on_failed
        self._taken = 0
        self._waiter: Any = None
        self._unsent: list[bytes] = []
        self._error: LedgerLogError | None = None
        self._is_abandoned = False
        self._confirmed = NO_ENTRY
        self.is_given = False

    def add(self, payload: bytes, waiter: Any, /) -> None:
        self._waiter = waiter
        if self._error is not None or self.ledger.is_broken:
            waiter.set_exception(self._error or LedgerClosedError("it takes no more"))
            return
        self._unsent.append(bytes(payload))
        self._taken += 1

    def send_now(self) -> None:
        unsent, self._unsent = self._unsent, []
        for payload in unsent:
            header = decode_entry_header(payload)
            entry = Entry(payload, header.first_offset, header.count, header.append_time_ms)
            offsets = range(entry.first_offset, entry.end_offset)
            self._client.world.sent(self.id, dict.fromkeys(offsets, entry.append_time_ms))
            self._client.world.quorums.add(self.ledger, entry)

    def abandon(self) -> None:
        self._is_abandoned = True
        self._unsent.clear()

    async def close(self) -> LedgerMetadata:
        """Close the ledger permanently at the last add confirmed, as the client does."""
        await self._client.tree.pause()
        done: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

        def closed(is_closed: bool | None) -> None:
            if not done.done():
                done.set_result(is_closed)

        self._client.world.quorums.close(self.ledger, closed)
        is_closed = await done
        if is_closed is None:
            self._client.tree.faults += 1
            raise MetadataUnavailableError("no answer")
        if not is_closed:
            raise LedgerFencedError("others recover it", ledger_id=self.id)
        return await self._client.ledger_metadata(self.id)

    def is_of(self, client: Any) -> bool:
        """Whether the process of `client` created the ledger."""
        return client is self._client

    @property
    def is_over(self) -> bool:
        """Whether nothing more is written, or whether no leader ever got the handle."""
        return not self.is_given or self._is_abandoned or self.ledger.state is LedgerState.CLOSED

    # --- what the bookies say ---

    @property
    def _is_silent(self) -> bool:
        return self._is_abandoned or self._client.tree.is_dead

    def on_confirmed(self, last_entry_id: int) -> None:
        first, self._confirmed = self._confirmed + 1, last_entry_id
        if not self._is_silent:
            self._listener.complete([(self._waiter, i) for i in range(first, last_entry_id + 1)])
            self.send_now()

    def on_broken(self, is_lost: bool) -> None:
        error: LedgerLogError = NotEnoughBookiesError("a bookie failed", wanted=3, available=2)
        if is_lost:
            error = LedgerFencedError("somebody recovers it", ledger_id=self.id)
        self._error = error
        self._unsent.clear()
        if not self._is_silent:
            if self._taken > self._confirmed + 1:  # otherwise no add waits for an answer
                self._waiter.set_exception(error)
            self._on_failed(error)


class SimReader:
    """A handle that reads a ledger, and may follow it."""

    def __init__(self, client: LeaderLedgers, ledger: SimLedger, *, has_end: bool) -> None:
        self.id = ledger.ledger_id
        self.last_add_confirmed = NO_ENTRY
        self.is_closed = False
        self.error: LedgerLogError | None = None
        self._client = client
        self._ledger = ledger
        self._on_change: Callable[[], None] | None = None
        self._given = NO_ENTRY
        if has_end:
            self._catch_up()
            self._fall_behind()

    def _catch_up(self) -> None:
        ledger = self._ledger
        self.last_add_confirmed = max(self.last_add_confirmed, ledger.readable - 1)
        self.is_closed = ledger.state is LedgerState.CLOSED
        if ledger.is_deleted:
            self.error = LedgerNotFoundError("it was deleted", ledger_id=self.id)

    def _fall_behind(self) -> None:
        """Perhaps lower the known end, because the answering bookies may have an older LAC."""
        world = self._client.world
        if world.is_faulty and not self.is_closed and world.extra.random() < 0.3:
            behind = world.extra.randint(0, BEHIND_ENTRIES_MAX)
            self.last_add_confirmed = max(NO_ENTRY, self.last_add_confirmed - behind)

    def follow(
        self, on_change: Callable[[], None], *, entries_size_bytes_max: int = 0
    ) -> SimReader:
        """This handle is its own follower."""
        del entries_size_bytes_max
        finished = FINISHED.get()
        is_again = finished is not None and self.id in finished
        self._client.world.require(not is_again, f"a tail follows ledger {self.id} twice")
        self._on_change = on_change
        self._client.world.followers.setdefault(self.id, []).append(self)
        self.notice()
        return self

    def notice(self) -> None:
        """Notify the follower after a delay."""
        world = self._client.world
        world.later(world.random.randint(1, NEWS_MS_MAX), self._notice)

    def _notice(self) -> None:
        if self._on_change is not None:
            self._catch_up()
            self._on_change()

    def cancel(self) -> None:
        self._on_change = None

    def watched_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[Any]:
        random = self._client.world.random
        last = random.choice((first_entry_id - 1, first_entry_id, last_entry_id))
        return self._entries(first_entry_id, min(last, last_entry_id) + 1)

    def _entries(self, first_entry_id: int, end_entry_id: int) -> list[Any]:
        self._given = max(self._given, end_entry_id - 1)
        stored = self._ledger.stored[first_entry_id:end_entry_id]
        return [
            SimpleNamespace(entry_id=number, payload=entry.name, length=100 * (number + 1))
            for number, entry in enumerate(stored, first_entry_id)
        ]

    async def refresh(self) -> int:
        await self._client.tree.pause()
        self._catch_up()
        return self.last_add_confirmed

    async def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
        place: object = None,
        slices: object = None,
    ) -> AsyncGenerator[Sequence[Any], None]:
        assert is_listed
        assert place is None, "bounds of several readers are the client's"
        assert slices is None, "parts of entries are the client's"
        assert last_entry_id is not None
        while first_entry_id <= last_entry_id:
            await self._client.tree.pause()
            if self._ledger.is_deleted:
                raise LedgerNotFoundError("it is gone", ledger_id=self.id)
            self._client.world.require(
                SEEN.get() or last_entry_id < self._ledger.readable,
                f"entry {last_entry_id} is read too early",
            )
            if first_entry_id >= len(self._ledger.stored):
                raise EntryNotFoundError("no bookie has it", ledger_id=self.id)
            end = min(first_entry_id + BATCH_ENTRIES, last_entry_id + 1)
            end = min(end, len(self._ledger.stored))
            yield self._entries(first_entry_id, end)
            first_entry_id = end

    async def aclose(self) -> None:
        finished = FINISHED.get()
        is_at_end = self.is_closed and self._given == self.last_add_confirmed
        if finished is not None and self._on_change is not None and is_at_end:
            finished.add(self.id)
        self.cancel()


class LeaderLedgers:
    """The part of a client that leaders and readers of their logs need."""

    def __init__(self, world: LeaderHosts, tree: SimTree, stores: MetadataStores) -> None:
        self.world = world
        self.tree = tree
        self.services: Any = None
        self.looked_at: set[int] = set()
        """The ledgers whose metadata it read, which include all ledgers that it drops."""
        self._stores = stores
        self._is_closed = False
        self._on_closed: dict[Callable[[], None], None] = {}

    def check_open(self) -> None:
        if self._is_closed:
            raise LocalProtocolError("the client was closed")

    def close(self) -> None:
        """Close the client of a process that leads no log."""
        self._is_closed = True
        on_closed, self._on_closed = self._on_closed, {}
        for call in on_closed:
            call()

    def ends_first(self, user: object) -> None:
        """Only clients that lead nothing are closed here."""

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        self._on_closed[on_closed] = None
        return lambda: self._on_closed.pop(on_closed, None)

    async def create_registered_ledger(
        self,
        create: Any,
        spec: LedgerSpec,
        *,
        listener: Any,
        on_failed: Callable[[Any], Any],
    ) -> SimWriter:
        quorum, custom_metadata = spec.quorum, dict(spec.custom_metadata or {})
        world = self.world
        log_id = next(iter(custom_metadata.values())).decode()
        is_wanted = self.tree.is_dead or world.is_led_by(self, log_id)
        if not is_wanted:
            await asyncio.sleep(0)  # the caller may have ended just now
            is_wanted = world.is_led_by(self, log_id)
        world.require(is_wanted, "a ledger is made for a leader that nobody waits for")
        await self.tree.pause()
        if (still_ms := world.quorums.stands_still_ms()) > 0:
            await asyncio.sleep(still_ms / 1e3)
        if world.quorums.fails(0.05):
            self.tree.faults += 1
            raise NotEnoughBookiesError("no bookies", wanted=3, available=2)
        (ledger_id,) = await self._stores.ledgers.new_ids(1)
        metadata = _metadata(quorum, world.random.getrandbits(60), custom_metadata)
        ledger = world.quorums.create(0, ledger_id)
        writer = world.writers[ledger_id] = SimWriter(self, ledger, listener, on_failed)
        world.log_of[ledger_id] = log_id
        await create(ledger_id, metadata)
        writer.is_given = True
        return writer

    async def create_as_older_releases(self, log_id: str) -> tuple[int, ...]:
        """Create ledgers without a registration, as leaders of older releases left them."""
        ids = await self._stores.ledgers.new_ids(1)
        for ledger_id in ids:
            self.world.quorums.create(0, ledger_id).is_broken = True
            self.world.log_of[ledger_id] = log_id
            metadata = _metadata(Quorum(3, 3, 2), ledger_id, {LOG_ID_KEY: log_id.encode()})
            await self._stores.ledgers.create(ledger_id, metadata)
        return tuple(ids)

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        is_listed: bool = False,
        may_be_outdated: bool = False,
    ) -> SimReader:
        del password, may_be_outdated
        self.check_open()
        await self.ledger_metadata(ledger_id)
        return SimReader(self, self.world.quorums.by_id[ledger_id], has_end=not is_listed)

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        self.looked_at.add(ledger_id)
        try:
            found = (await self._stores.ledgers.load(ledger_id)).value
        except LedgerNotFoundError:  # as in the client: only certain after a sync
            await self._stores.ledgers.sync()
            found = (await self._stores.ledgers.load(ledger_id)).value
        ledger = self.world.quorums.by_id[ledger_id]
        if ledger.state is not LedgerState.CLOSED:
            return found
        length = 100 * (ledger.last_entry_id + 1)
        return found.closed(last_entry_id=ledger.last_entry_id, length=length)

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = -1
    ) -> LedgerMetadata:
        del password
        await self.ledger_metadata(ledger_id)
        done: asyncio.Future[SimLedger | None] = asyncio.get_running_loop().create_future()

        def sealed(ledger: SimLedger | None) -> None:
            if not done.done():
                done.set_result(ledger)

        self.world.quorums.seal(self.world.quorums.by_id[ledger_id], sealed)
        if await done is None:
            self.tree.faults += 1
            raise LedgerRecoveryError("too few bookies answered", ledger_id=ledger_id)
        metadata = await self.ledger_metadata(ledger_id)
        self.world.require(
            metadata.last_entry_id >= floor_entry_id, f"ledger {ledger_id} ends below its floor"
        )
        return metadata

    async def entry_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int
    ) -> dict[str, Code]:
        del metadata
        await self.tree.pause()
        ledger = self.world.quorums.by_id[ledger_id]
        is_there = not ledger.is_deleted and entry_id < len(ledger.stored)
        code = Code.OK if is_there else Code.NO_ENTRY
        return dict.fromkeys(("a:1", "b:1", "c:1"), code)

    async def delete_ledger(self, ledger_id: int) -> None:
        await self._stores.ledgers.delete(ledger_id)

    async def list_ledgers(self) -> AsyncIterator[int]:
        async for ledger_id in self._stores.ledgers.ids():
            yield ledger_id


def _metadata(quorum: Quorum, token: int, custom: dict[str, bytes]) -> LedgerMetadata:
    fragments = (Fragment(0, ("a:1", "b:1", "c:1")),)
    return LedgerMetadata(quorum=quorum, fragments=fragments, token=token, custom=custom)
