"""A worker that moves a member's entries of a closed fragment to another bookie.

It copies entry by entry, and then replaces the member in the record. Before the first copy, our
worker reads how many epochs of doubt the target has begun. Its write of the record fails if the
target has begun another epoch. Apache's worker does not check this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bookie_server.core.repair import ends_of, owed_of
from bookie_server.core.requests import StoredAdd, StoredRead
from ledgerlog_spark.model import Code, LedgerMetadata, Versioned
from tests.sim.late_add import KEY
from tests.sim.network import Message

if TYPE_CHECKING:
    from tests.sim.loss.world import LossWorld

ANSWER_MS = 30


class Worker:
    """One move of one fragment. It gives up after any failure.

    Attributes:
        has_ended: Whether it has written the record or given up.
    """

    def __init__(self, world: LossWorld, name: str, ledger_id: int, *, is_apache: bool) -> None:
        self.world = world
        self.name = name
        self.ledger_id = ledger_id
        self.is_apache = is_apache
        self.has_ended = False
        self.record: Versioned[LedgerMetadata]
        self.moved: LedgerMetadata
        self.target = ""
        self.doubts = 0
        self.left: list[tuple[int, list[str]]] = []

    def begin(self, number: int, old: str, target: str) -> None:
        """Move the entries of fragment `number` from `old` to `target`."""
        store = self.world.store
        record = store.records.get(self.ledger_id)
        if record is None or not record.value.is_closed:
            self.has_ended = True
            return
        self.record, self.target = record, target
        self.doubts = store.doubts.get(target, 0)
        metadata = record.value
        fragment, end = ends_of(metadata)[number]
        ensemble = tuple(target if one == old else one for one in fragment.ensemble)
        fragments = list(metadata.fragments)
        fragments[number] = replace(fragment, ensemble=ensemble)
        self.moved = metadata.with_fragments(tuple(fragments))
        size, copies = metadata.quorum.ensemble_size, metadata.quorum.write_quorum
        for entry_id in owed_of(fragment, end, metadata.quorum, old):
            members = [fragment.ensemble[(entry_id + step) % size] for step in range(copies)]
            self.left.append((entry_id, [one for one in members if one != old]))
        self._next()

    def _next(self) -> None:
        if not self.left:
            self._write()
            return
        entry_id, members = self.left[0]
        if not members:
            self.has_ended = True
            return
        source = members.pop(0)
        bookie = self.world.bookies[source]

        def read(code: Code, stored: bytes | None) -> None:
            if code is Code.OK and stored is not None:
                self._store(entry_id, stored)
            else:
                self._next()

        request = StoredRead(self.ledger_id, entry_id)
        self._request("read", source, lambda reply: bookie.read(request, reply), read)

    def _store(self, entry_id: int, stored: bytes) -> None:
        add = StoredAdd(self.ledger_id, (entry_id,), (len(stored),), stored, KEY, is_recovery=True)
        bookie = self.world.bookies[self.target]

        def added(code: Code, _stored: bytes | None = None) -> None:
            if code is Code.OK:
                self.left.pop(0)
                self._next()
            else:
                self.has_ended = True

        self._request("add", self.target, lambda reply: bookie.add(add, reply), added)

    def _write(self) -> None:
        store = self.world.store

        def arrive() -> None:
            is_same = store.doubts.get(self.target, 0) == self.doubts
            if is_same or self.is_apache:
                self.world.checkers.of(self.ledger_id).workers.add(self.name)
                store.write(self.name, self.ledger_id, self.moved, self.record.version)
            self.has_ended = True

        self.world.network.send(Message("cas", self.name, "zk", arrive))

    def _request(
        self,
        kind: str,
        bookie: str,
        serve: Callable[[Callable[..., None]], bool],
        then: Callable[[Code, bytes | None], None],
    ) -> None:
        world, is_open = self.world, True

        def answered(code: Code, stored: Any = None) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                then(code, stored)

        def reply(*answer: Any) -> None:
            world.network.send(
                Message(f"{kind}_reply", bookie, self.name, lambda: answered(*answer))
            )

        def arrive() -> None:
            if not serve(reply):
                reply(Code.UNAVAILABLE)

        world.network.send(Message(kind, self.name, bookie, arrive))
        world.scheduler.call_later(ANSWER_MS * 1_000, lambda: answered(Code.TIMEOUT))
