"""A worker that moves a member's entries of a closed fragment to another bookie.

It takes the lock of the ledger, copies entry by entry, and then replaces the member in the record.
Our worker copies only entries that the target does not list, names the target only if a list that
was requested after the record shows all entries, and after a conflict begins again with the record.
Apache's worker requests no list: it copies all entries, and after a conflict writes the newest
record with the same replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bookie_server.core.repair import ends_of, owed_of
from bookie_server.core.requests import StoredAdd, StoredRead
from ledgerlog_spark.model import Code, LedgerMetadata, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from tests.sim.late_add import KEY, under_lac
from tests.sim.network import Message

if TYPE_CHECKING:
    from tests.sim.release.world import ReleaseWorld

APACHE_MS = 150
"""The longest time from the first copy of Apache's worker to its last write of the record."""


class Worker:
    """One move of one fragment. It gives up after most failures.

    Attributes:
        is_alive: Whether its session lives. A worker goes on for a while after its session.
        has_ended: Whether it has written the record or given up.
        sleep_ms: Time for which it sleeps before each step.
        patience_ms: Time for which it waits for each answer.
        on_end: Called after its write of the record, unless the write conflicts.
    """

    def __init__(
        self, world: ReleaseWorld, name: str, ledger_id: int, *, is_apache: bool = False
    ) -> None:
        self.world = world
        self.name = name
        self.ledger_id = ledger_id
        self.is_apache = is_apache
        self.is_alive = True
        self.has_ended = False
        self.sleep_ms: Callable[[], int] = lambda: 0
        self.patience_ms = 30
        self.on_end: Callable[[], None] = lambda: None
        self.attempts_left = 5
        self.record: Versioned[LedgerMetadata]
        self.number = 0
        self.old = self.target = ""
        self._began_us = 0

    def begin(self, number: int, old: str, target: str) -> None:
        """Move the entries of fragment `number` from `old` to `target`."""
        self.number, self.old, self.target = number, old, target
        self._began_us = self.world.scheduler.now_us
        store = self.world.store
        self._ask("lock", lambda: store.lock(self.ledger_id, self), self._on_locked)

    def _on_locked(self, is_mine: Any) -> None:
        if is_mine:
            self._load(self._list)
        else:
            self._end()

    def _load(self, then: Callable[[], None]) -> None:
        """Load the record with all changes before this, and continue if the move is still due."""

        def loaded(record: Versioned[LedgerMetadata] | None) -> None:
            if record is None or not self._is_due(record.value):
                self._end()
                return
            self.record = record
            then()

        self._ask("load", lambda: self.world.store.records.get(self.ledger_id), loaded)

    def _is_due(self, metadata: LedgerMetadata) -> bool:
        if not metadata.is_closed or self.number >= len(metadata.fragments):
            return False
        ensemble = metadata.fragments[self.number].ensemble
        return self.old in ensemble and self.target not in ensemble

    def _list(self) -> None:
        """Request the list of the target's entries, or copy everything."""
        if self.is_apache:
            self._copy(self._owed())
            return
        bookie = self.world.bookies[self.target]

        def listed(held: frozenset[int] | None) -> None:
            if held is None:
                self._again()
                return
            missing = [one for one in self._owed() if one not in held]
            if missing:
                self._copy(missing)
            else:
                self._write()

        self._request(
            "list", self.target, lambda on: bookie.list_entries(self.ledger_id, on), listed
        )

    def _owed(self) -> list[int]:
        """Return the entries that the target must hold after the move."""
        fragment, end = ends_of(self.record.value)[self.number]
        return list(owed_of(fragment, end, self.record.value.quorum, self.old))

    def _copy(self, left: list[int]) -> None:
        if not left:
            if self.is_apache:
                self._write()
            else:
                self._list()
            return
        entry_id, quorum = left[0], self.record.value.quorum
        ensemble = self.record.value.fragments[self.number].ensemble
        members = [
            ensemble[(entry_id + step) % quorum.ensemble_size]
            for step in range(quorum.write_quorum)
        ]
        sources = [one for one in members if one != self.old] + [self.old]
        self._read(sources, left)

    def _read(self, sources: list[str], left: list[int]) -> None:
        if not sources:
            self._end()
            return
        source, request = sources[0], StoredRead(self.ledger_id, left[0])
        bookie = self.world.bookies[source]

        def read(answer: tuple[Code, bytes | None] | None) -> None:
            if answer is not None and answer[0] is Code.OK and answer[1] is not None:
                self._store(answer[1], left)
            else:
                self._read(sources[1:], left)

        self._request("read", source, lambda on: bookie.read(request, lambda *both: on(both)), read)

    def _store(self, stored: bytes, left: list[int]) -> None:
        if self.is_apache:
            stored = under_lac(stored, self.record.value.last_entry_id)
        add = StoredAdd(self.ledger_id, (left[0],), (len(stored),), stored, KEY, is_recovery=True)
        bookie = self.world.bookies[self.target]

        def added(code: Code | None) -> None:
            if code is Code.OK:
                self._copy(left[1:])
            else:
                self._end()

        self._request("add", self.target, lambda on: bookie.add(add, on), added)

    def _write(self) -> None:
        world, record = self.world, self.record
        fragments = list(record.value.fragments)
        fragment = fragments[self.number]
        ensemble = tuple(self.target if one == self.old else one for one in fragment.ensemble)
        fragments[self.number] = replace(fragment, ensemble=ensemble)
        moved = record.value.with_fragments(tuple(fragments))

        def act() -> MetadataOutcome:
            world.checkers.of(self.ledger_id).workers.add(self.name)
            return world.store.write(self.name, self.ledger_id, moved, record.version)[0]

        def written(outcome: MetadataOutcome | None) -> None:
            if outcome is MetadataOutcome.CONFLICT:
                world.checkers.mark("move conflicts")
                self._on_conflict()
            else:
                self._end()
                self.on_end()

        self._ask("cas", act, written)

    def _on_conflict(self) -> None:
        """Begin again with the record. Apache's worker keeps its copies."""
        now_us = self.world.scheduler.now_us
        if self.is_apache and now_us - self._began_us < APACHE_MS * 1_000:
            self._load(self._write)
        elif self.is_apache:
            self._end()
        else:
            self._again()

    def _again(self) -> None:
        self.attempts_left -= 1
        if self.attempts_left:
            self.world.scheduler.call_later(5_000, lambda: self._load(self._list))
        else:
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self.is_alive = False

    def _ask(self, kind: str, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Send a request to the metadata store. `then` gets None after a time-out."""

        def arrive(reply: Callable[[Any], None]) -> bool:
            reply(act())
            return True

        self._request(kind, "zk", arrive, then)

    def _request(
        self,
        kind: str,
        target: str,
        serve: Callable[[Callable[[Any], None]], bool],
        then: Callable[[Any], None],
    ) -> None:
        world, is_open = self.world, True

        def answered(answer: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                then(answer)

        def reply(answer: Any) -> None:
            world.network.send(
                Message(f"{kind}_reply", target, self.name, lambda: answered(answer))
            )

        def arrive() -> None:
            if not serve(reply):
                reply(None)

        def send() -> None:
            world.network.send(Message(kind, self.name, target, arrive))
            world.scheduler.call_later(self.patience_ms * 1_000, lambda: answered(None))

        world.scheduler.call_later(1_000 * self.sleep_ms(), send)
