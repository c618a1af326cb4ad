"""Performs the effects of `LedgerReplication` with messages of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from ledgerlog_spark.protocol.autorecovery.replicate.job import (
    LedgerReplication,
    ReplicationSettings,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from tests.sim.client import as_entry
from tests.sim.late_add import KEY
from tests.sim.network import Message

if TYPE_CHECKING:
    from tests.sim.healing.store import Session
    from tests.sim.healing.workers import HealWorker

SETTINGS = ReplicationSettings(grace_ms=60, quiet_ms=2_000)


class Job:
    """One job of a worker. All its requests belong to the session with which it began."""

    def __init__(self, worker: HealWorker, kind: str, ledger_id: int) -> None:
        self.worker = worker
        self.world = worker.world
        self.kind = kind
        self.ledger_id = ledger_id
        self.session = worker.session
        self.machine = LedgerReplication(ledger_id, SETTINGS)
        self.is_alive = True
        self.waited_from_us: int | None = None
        self.has_waited = False
        self.task: r.Task | None = None
        self.ended: r.JobEnded | None = None
        self._perform: dict[type, Callable[[Any], None]] = {
            r.LoadTask: self._load_task,
            r.TakeLock: self._take_lock,
            r.ReleaseLock: self._release_lock,
            m.LoadMetadata: self._load,
            r.ListRegistered: self._list_registered,
            r.ListEntries: self._list_entries,
            r.ForceEntries: self._force,
            r.ReadCopies: self._read,
            r.AddCopies: self._add,
            ReadIdentities: self._read_identities,
            m.CasMetadata: self._cas,
            r.DeleteTask: self._delete_task,
            r.ReportUnreadable: self._report,
            r.MeasureQuiet: self._measure,
            r.ReadFloor: self._read_floor,
            r.RecoverForCopies: self._recover,
            m.StartTimer: self._timer,
        }

    def begin(self) -> None:
        self._perform_all(self.machine.begin())

    def drop(self) -> None:
        """Forget the job. Its pending requests may still arrive."""
        self.is_alive = False

    def _perform_all(self, effects: list[r.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, r.JobEnded):
                self.ended = effect
                self.world.note(self.worker.name, f"{self.ledger_id} {self.kind}: {effect}")
                self.world.checkers.mark(f"job {effect.outcome.name}")
                self.is_alive = False
                self.worker.job_ended(self, effect)
                return
            self.world.note(self.worker.name, effect)
            delay_us = self.world.delay_of(self.worker, effect)
            self.world.scheduler.call_later(delay_us, partial(self._send, effect))

    def _send(self, effect: Any) -> None:
        if self.is_alive and self.worker.is_alive:
            self._perform[type(effect)](effect)

    def _answer(self, reply: Any) -> None:
        if self.is_alive and self.worker.is_alive:
            self._perform_all(self.machine.handle(reply))

    # The metadata store.

    def _ask_store(
        self, kind: str, act: Callable[[Session], Any], then: Callable[[Any], Any], lost: Any
    ) -> None:
        """Send a request. `then` makes the reply from the answer; `lost` is the reply without
        one."""
        session = self.world.session_for(self)

        def arrive(reply: Callable[[Any], None]) -> bool:
            if not session.is_alive:
                reply(lost)
                return True
            reply(then(act(session)))
            return True

        self._request(kind, "zk", arrive, lost)

    def _load_task(self, effect: r.LoadTask) -> None:
        number = effect.request

        def act(_: Session) -> r.TaskLoaded:
            note = self.world.store.notes[self.kind].get(self.ledger_id)
            if note is None:
                return r.TaskLoaded(number, m.MetadataOutcome.GONE)
            whole = r.WHOLE_LEDGER
            task = r.Task(
                r.TaskQueue(self.kind),
                note.version,
                lost=note.bookies if self.kind == "mark" else frozenset(),
                damaged=tuple(
                    r.DamagedCopies(name, whole, ((entry_id, entry_id),))
                    for name, entry_id in sorted(note.damaged)
                ),
                moves=frozenset((name, whole) for name in note.bookies)
                if self.kind == "move"
                else frozenset(),
            )
            self.task = task
            return r.TaskLoaded(number, m.MetadataOutcome.OK, task)

        lost = r.TaskLoaded(number, m.MetadataOutcome.UNAVAILABLE)
        self._ask_store("task", act, lambda found: found, lost)

    def _take_lock(self, effect: r.TakeLock) -> None:
        number, store = effect.request, self.world.store
        self._ask_store(
            "lock",
            lambda session: store.lock(self.ledger_id, session),
            lambda is_mine: r.LockTaken(number, m.MetadataOutcome.OK, is_mine),
            r.LockTaken(number, m.MetadataOutcome.UNAVAILABLE),
        )

    def _release_lock(self, effect: r.ReleaseLock) -> None:
        reply, store = r.LockReleased(effect.request), self.world.store
        self._ask_store(
            "unlock", lambda session: store.unlock(self.ledger_id, session), lambda _: reply, reply
        )

    def _load(self, effect: m.LoadMetadata) -> None:
        number, store = effect.request, self.world.store

        def act(_: Session) -> m.MetadataLoaded:
            found = store.load(
                self.ledger_id, is_synced=effect.sync_first, name=f"{self.worker.name} {number}"
            )
            if found is None:
                return m.MetadataLoaded(number, m.MetadataOutcome.GONE)
            return m.MetadataLoaded(number, m.MetadataOutcome.OK, found)

        lost = m.MetadataLoaded(number, m.MetadataOutcome.UNAVAILABLE)
        self._ask_store("load", act, lambda found: found, lost)

    def _list_registered(self, effect: r.ListRegistered) -> None:
        number, world = effect.request, self.world

        def act(_: Session) -> r.RegisteredListed:
            names = tuple(n for n, one in world.bookies.items() if one.is_registered)
            return r.RegisteredListed(
                number,
                m.MetadataOutcome.OK,
                tuple(n for n in names if n not in world.read_only),
                frozenset(n for n in names if n in world.read_only),
            )

        lost = r.RegisteredListed(number, m.MetadataOutcome.UNAVAILABLE)
        self._ask_store("registered", act, lambda found: found, lost)

    def _read_identities(self, effect: ReadIdentities) -> None:
        number = effect.request
        self._ask_store(
            "identity",
            lambda _: self.world.store.identities_of(effect.bookie_ids),
            lambda found: IdentitiesRead(number, found),
            IdentitiesRead(number, None),
        )

    def _cas(self, effect: m.CasMetadata) -> None:
        number, world = effect.request, self.world

        def act(_: Session) -> m.MetadataWritten:
            world.checkers.of(self.ledger_id).workers.add(self.worker.name)
            outcome, written = world.store.replace(
                self.worker.name,
                self.ledger_id,
                effect.metadata,
                effect.version,
                effect.identities,
            )
            if outcome in (m.MetadataOutcome.CONFLICT, m.MetadataOutcome.BOOKIE_CHANGED):
                world.checkers.mark("move conflicts")
            return m.MetadataWritten(number, outcome, written)

        lost = m.MetadataWritten(number, m.MetadataOutcome.UNKNOWN)
        self._ask_store("cas", act, lambda found: found, lost)

    def _delete_task(self, effect: r.DeleteTask) -> None:
        number, world = effect.request, self.world

        def act(_: Session) -> bool:
            note = world.store.notes[self.kind].get(self.ledger_id)
            record = world.store.records.get(self.ledger_id)
            if effect.record not in (None, record and record.version):
                return False
            is_deleted = world.store.delete_note(self.kind, self.ledger_id, effect.version)
            if is_deleted and note is not None and self.kind == "mark":
                checker = world.checkers.of(self.ledger_id)
                checker.mark_deleted(self.worker.name, note.bookies, world.long_away())
            return is_deleted

        self._ask_store(
            "delete",
            act,
            lambda is_deleted: r.TaskDeleted(number, m.MetadataOutcome.OK, is_deleted),
            r.TaskDeleted(number, m.MetadataOutcome.UNAVAILABLE),
        )

    def _report(self, effect: r.ReportUnreadable) -> None:
        number, world = effect.request, self.world

        def act(_: Session) -> None:
            world.store.reports[self.ledger_id] = effect.entries
            world.checkers.of(self.ledger_id).reported(self.worker.name, effect.entries)

        self._ask_store(
            "report",
            act,
            lambda _: r.Reported(number, m.MetadataOutcome.OK),
            r.Reported(number, m.MetadataOutcome.UNAVAILABLE),
        )

    # Bookies.

    def _list_entries(self, effect: r.ListEntries) -> None:
        number, bookie = effect.request, self.world.bookies[effect.bookie_id]

        def serve(reply: Callable[[Any], None]) -> bool:
            check = self.world.checkers.of(self.ledger_id).listing(effect.bookie_id)

            def listed(held: frozenset[int] | None) -> None:
                if held is None:
                    reply(r.EntriesListed(number, Code.IO_ERROR))
                    return
                if not bookie.is_weak:
                    check(held | bookie.unlisted)
                ranges = tuple((one, one) for one in sorted(held))
                reply(r.EntriesListed(number, Code.OK, ranges))

            return bookie.list_entries(self.ledger_id, listed)

        self._ask_bookie("list", effect.bookie_id, serve, r.EntriesListed, number)

    def _force(self, effect: r.ForceEntries) -> None:
        number, bookie = effect.request, self.world.bookies[effect.bookie_id]
        request = StoredRead(self.ledger_id, effect.entry_id, is_recovery=True)

        def serve(reply: Callable[[Any], None]) -> bool:
            return bookie.read(request, lambda code, _: reply(r.EntriesForced(number, code)))

        self._ask_bookie("force", effect.bookie_id, serve, r.EntriesForced, number)

    def _read(self, effect: r.ReadCopies) -> None:
        number, bookie = effect.request, self.world.bookies[effect.bookie_id]
        count = min(effect.count_max, 4)
        request = StoredBatchRead(self.ledger_id, effect.first_entry_id, count, 1 << 20)

        def serve(reply: Callable[[Any], None]) -> bool:
            def read(code: Code, stored: Any) -> None:
                copies: list[r.Copy] = []
                for sent in map(bytes, stored):
                    entry_id = effect.first_entry_id + len(copies)
                    is_garbled = (effect.bookie_id, entry_id) in self.world.garbled
                    one = sent[:-1] + bytes([sent[-1] ^ is_garbled])
                    entry = as_entry(one, self.ledger_id, entry_id)
                    if entry is None:
                        break
                    copies.append(r.Copy(entry_id, entry.length, entry.payload, one))
                if stored and not copies:
                    code = Code.DIGEST_MISMATCH
                reply(r.CopiesRead(number, code, tuple(copies)))

            return bookie.read_batch(request, read)

        self._ask_bookie("read_batch", effect.bookie_id, serve, r.CopiesRead, number)

    def _add(self, effect: r.AddCopies) -> None:
        number, bookie = effect.request, self.world.bookies[effect.bookie_id]
        stored = [bytes(one.stored) for one in effect.copies]
        request = StoredAdd(
            self.ledger_id,
            tuple(one.entry_id for one in effect.copies),
            tuple(map(len, stored)),
            b"".join(stored),
            KEY,
            is_recovery=True,
        )

        def serve(reply: Callable[[Any], None]) -> bool:
            def added(code: Code) -> None:
                reply(r.CopiesAdded(number, code, bookie.boots))

            return bookie.add(request, added)

        self._ask_bookie("add", effect.bookie_id, serve, r.CopiesAdded, number)

    def _ask_bookie(
        self,
        kind: str,
        bookie: str,
        serve: Callable[[Callable[[Any], None]], bool],
        reply_type: Callable[..., Any],
        number: int,
    ) -> None:
        down = reply_type(number, Code.UNAVAILABLE)
        if not self.world.bookies[bookie].is_registered:
            self.world.scheduler.call_later(500, lambda: self._answer(down))
            return
        self._request(kind, bookie, serve, reply_type(number, Code.TIMEOUT), down)

    def _request(
        self,
        kind: str,
        target: str,
        serve: Callable[[Callable[[Any], None]], bool],
        lost: Any,
        down: Any = None,
    ) -> None:
        world, is_open = self.world, True

        def answered(answer: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                self._answer(answer)

        def reply(answer: Any) -> None:
            back = Message(f"{kind}_reply", target, self.worker.name, lambda: answered(answer))
            world.network.send(back)

        def arrive() -> None:
            if not serve(reply):
                reply(down)

        world.network.send(Message(kind, self.worker.name, target, arrive))
        world.scheduler.call_later(world.answer_ms * 1_000, lambda: answered(lost))

    # Time, and other machines.

    def _timer(self, effect: m.StartTimer) -> None:
        def fired() -> None:
            self.has_waited = True
            self._answer(m.TimerFired(effect.request))

        self.world.scheduler.call_later(effect.delay_ms * 1_000, fired)

    def _measure(self, effect: r.MeasureQuiet) -> None:
        quiet = self.world.quiet_ms(self.ledger_id)
        self._later(r.QuietMeasured(effect.request, quiet))

    def _read_floor(self, effect: r.ReadFloor) -> None:
        floor = self.world.floors.get(self.ledger_id, -1)
        self._later(r.FloorRead(effect.request, m.MetadataOutcome.OK, floor))

    def _later(self, reply: Any) -> None:
        self.world.scheduler.call_later(1_000, lambda: self._answer(reply))

    def _recover(self, effect: r.RecoverForCopies) -> None:
        world, number = self.world, effect.request
        world.check_fence(self, effect)
        world.recoveries += 1
        name = f"{self.worker.name}.r{world.recoveries}"
        client = world.recoverer(name, ledger_id=self.ledger_id, floor=effect.floor)

        def on_indication(indication: Any) -> None:
            if isinstance(indication, m.LedgerClosed):
                self._later(r.LedgerRecovered(number, None))
            elif isinstance(indication, m.LedgerFailed):
                self._later(r.LedgerRecovered(number, indication.failure))

        client.on_indication = on_indication
        client.feed(m.Start())
