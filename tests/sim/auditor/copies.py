"""A small cluster whose copies are checked: bookies with entries, limbo, damage, and outages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.check_machine import CheckMachine
from ledgerlog_spark.protocol.autorecovery.audit.digests import DigestCheck, DigestSettings
from ledgerlog_spark.protocol.autorecovery.audit.replicas import (
    ReplicaCheck,
    ReplicaSettings,
    is_held_by,
)
from ledgerlog_spark.protocol.autorecovery.audit.unknown import ROUNDS, UnknownCopies
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.protocol.ledger.quorum import owns
from tests.sim.auditor.store import US, AuditStore
from tests.sim.checker import require
from tests.sim.draws import Draws
from tests.sim.runtime import Scheduler

ROUND_MS = 40
UNKNOWN_MS = (ROUNDS - 1) * ROUND_MS
"""Copies that are unknown for a shorter time are not missing.

The first round may come directly after the check that found them.
"""
WEEK_MS = 2_000
SETTINGS = ReplicaSettings(
    interval_ms=WEEK_MS, rounds_between_laps=3, round_ms=ROUND_MS, pause_ms=1
)
DIGEST_SETTINGS = DigestSettings(interval_ms=WEEK_MS, rate_bytes_per_second=50_000, poll_ms=100)
ENTRY_SIZE_BYTES = 100
WINDOW_MS = 100
SLACK_BYTES = 1_500
QUORUMS = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (2, 2, 1))


@dataclass
class Copies:
    """The entries of one ledger on one bookie."""

    held: set[int]
    damaged: set[int]
    unknown_since_us: int | None = None  # in limbo since then
    lacked_us: int = -1  # when it was last known to lack a copy, or to hold a damaged one


class CopyWorld:
    """Bookies with copies, and the two checks, which share the unknown copies."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.draws = Draws(seed)
        self.scheduler = Scheduler()
        self.store = AuditStore(self.scheduler)
        self.marks: Counter[str] = Counter()
        self.trace: list[str] | None = [] if keeps_trace else None
        self.quorum = Quorum(*self.draws.pick(QUORUMS, "quorum"))
        self.names = [f"b{n}" for n in range(self.quorum.ensemble_size + 2)]
        for name in self.names:
            self.store.register(name, self.store.new_session())
        self.copies: dict[tuple[int, str], Copies] = {}
        self.has_lists = {n: self.draws.uniform("apache", n) > 0.1 for n in self.names}
        self.times: dict[m.CheckKind, tuple[int, int]] = {}
        self.unknown = UnknownCopies()
        self.reads: list[tuple[int, int]] = []  # time and bytes of each read
        self.reported: set[tuple[str, int, str]] = set()  # by which check, ledger and bookie
        self.processes: list[CheckProcess] = []
        for ledger_id in range(self.draws.integer(2, 8, "ledgers")):
            self._create(ledger_id)

    def note(self, who: str, what: Any) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now_us / US:9.1f} {who}: {what}")

    def _create(self, ledger_id: int) -> None:
        """Create a ledger with fragments. All copies exist, except for some holes."""
        draws, quorum = self.draws, self.quorum
        starts = [0, *(5 * n + 3 for n in range(draws.integer(0, 2, "fragments", ledger_id)))]
        ensembles = [
            draws.shuffled(self.names, "of", ledger_id, n)[: quorum.ensemble_size] for n in starts
        ]
        is_closed = draws.uniform("closed", ledger_id) < 0.7
        last = starts[-1] + draws.integer(-1, 8, "last", ledger_id)
        metadata = LedgerMetadata(
            quorum,
            tuple(Fragment(*each) for each in zip(starts, ensembles, strict=True)),
            state=LedgerState.CLOSED if is_closed else LedgerState.OPEN,
            last_entry_id=last if is_closed else -1,
        )
        self.store.create(ledger_id, ensembles[0])
        self.store.replace(self.store.records[ledger_id], metadata)
        ends = [*starts[1:], last + 1]
        for (first, ensemble), end in zip(zip(starts, ensembles, strict=True), ends, strict=True):
            for index, name in enumerate(ensemble):
                owned = {one for one in range(first, end) if owns(quorum, index, one)}
                self.of(ledger_id, name).held |= owned

    def of(self, ledger_id: int, name: str) -> Copies:
        return self.copies.setdefault((ledger_id, name), Copies(set(), set()))

    # Faults.

    def harm(self, number: int) -> None:
        """Drop or damage one copy, put a ledger into limbo, or move a fragment."""
        draws, now_us = self.draws, self.scheduler.now_us
        ledger_id = draws.pick(sorted(self.store.records), "harmed", number)
        record = self.store.records[ledger_id]
        name = draws.pick(sorted(record.names), "at", number)
        kind = draws.pick(("drop", "drop", "damage", "limbo", "limbo", "move", "leave"), number)
        copies = self.of(ledger_id, name)
        self.marks[kind] += 1
        self.note("harm", f"{kind} {ledger_id} {name}")
        if kind in ("drop", "damage") and copies.held:
            # Often not the first or the last entry of a copy.
            entry_id = draws.pick(sorted(copies.held), "which", number)
            copies.damaged.add(entry_id)
            if kind == "drop":
                copies.held.discard(entry_id)
                copies.damaged.discard(entry_id)
            copies.lacked_us = now_us
        elif kind == "limbo" and copies.unknown_since_us is None:
            copies.unknown_since_us = now_us
            lasts_ms = draws.pick((20, 150, 100_000), "limbo", number)
            self.scheduler.call_later(
                lasts_ms * US, lambda: setattr(copies, "unknown_since_us", None)
            )
        elif kind == "move":
            self._move(record, name, number)
        elif kind == "leave":
            session = self.store.registered.pop(name, None)
            if session is not None:
                self.scheduler.call_later(
                    draws.integer(10, 300, "away", number) * US,
                    lambda: self.store.register(name, session),
                )

    def _move(self, record: m.LedgerRecord, old: str, number: int) -> None:
        """Copy the entries of a bookie to another bookie, which replaces it. Free the old
        copies."""
        spares = sorted(set(self.names) - record.names)
        if not spares:
            return
        new = self.draws.pick(spares, "new home", number)
        fragments = tuple(
            Fragment(one.first_entry_id, with_other(one.ensemble, old, new))
            for one in record.metadata.fragments
        )
        metadata = replace(record.metadata, fragments=fragments)
        source = self.of(record.ledger_id, old)
        target = self.of(record.ledger_id, new)
        target.held |= source.held
        if self.missing(metadata, record.ledger_id, new):
            target.lacked_us = self.scheduler.now_us
        source.lacked_us = -1
        source.held.clear()
        source.damaged.clear()
        self.store.replace(record, metadata)

    def missing(self, metadata: LedgerMetadata, ledger_id: int, name: str) -> list[int]:
        """The confirmed entries that a member lacks or holds damaged."""
        copies = self.of(ledger_id, name)
        ends = range(max(metadata.last_entry_id, metadata.fragments[-1].first_entry_id) + 1)
        owed = (one for one in ends if is_held_by(metadata, name, one))
        return [one for one in owed if one not in copies.held or one in copies.damaged]

    # The run.

    def run(self, span_ms: int) -> None:
        """Run the checks with faults, and after that without them."""
        self.processes = [
            CheckProcess(self, "replicas", ReplicaCheck(self.unknown, SETTINGS)),
            CheckProcess(self, "digests", DigestCheck(self.unknown, DIGEST_SETTINGS)),
        ]
        for process in self.processes:
            process.start()
        for number in range(self.draws.integer(1, 10, "harms")):
            at_ms = self.draws.integer(0, span_ms, "harm at", number)
            self.scheduler.call_at(at_ms * US, partial(self.harm, number))
        for number in range(self.draws.integer(0, 2, "outages")):
            at_ms = self.draws.integer(0, span_ms, "outage at", number)
            self.scheduler.call_at(at_ms * US, self._outage)
        self.scheduler.run_for(span_ms + 400)
        self.scheduler.run_for(2 * WEEK_MS + 4 * UNKNOWN_MS)
        self.check_end()

    def _outage(self) -> None:
        self.store.is_up = False
        for process in self.processes:
            process.send(m.StoreSuspended())
        self.scheduler.call_later(100 * US, self._end_outage)

    def _end_outage(self) -> None:
        self.store.is_up = True
        for process in self.processes:
            process.send(m.StoreResumed())

    # Checks.

    def count_read(self, size_bytes: int) -> None:
        """The bytes of each window of time are bounded."""
        now_us = self.scheduler.now_us
        self.reads.append((now_us, size_bytes))
        read = sum(size for at_us, size in self.reads if at_us > now_us - WINDOW_MS * US)
        limit = DIGEST_SETTINGS.rate_bytes_per_second * WINDOW_MS // 1_000
        require(read <= limit + SLACK_BYTES, "N13", f"{read} bytes in {WINDOW_MS} ms")

    def hole_begins(self, process: str, effect: m.WriteHole) -> None:
        """A hole is reported only if copies are missing, or unknown for a long time."""
        for hole in effect.holes:
            self.reported.add((process, effect.ledger_id, hole.bookie_id))
            copies = self.of(effect.ledger_id, hole.bookie_id)
            since_us = copies.unknown_since_us
            now_us = self.scheduler.now_us
            is_lasting = since_us is not None and now_us - since_us >= UNKNOWN_MS * US
            require(
                copies.lacked_us >= 0 or is_lasting,
                "N12",
                f"a hole of {hole.bookie_id} in ledger {effect.ledger_id} is reported, which it "
                "does not have",
            )

    def check_end(self) -> None:
        """Each hole of a registered member is in the queue of holes, and no mark was written."""
        require(not self.store.marks.notes, "N11", "a check wrote to the queue of lost bookies")
        for ledger_id, record in self.store.records.items():
            for name in sorted(record.names & set(self.store.registered)):
                missing = self.missing(record.metadata, ledger_id, name)
                if not missing:
                    continue
                found = self.store.holes.notes.get(ledger_id)
                is_lack = bool(set(missing) - self.of(ledger_id, name).held)
                # The rounds of the replica check also read what the digest check could not read.
                by_list = ("replicas",) if is_lack and self.has_lists[name] else ()
                checks = by_list or ("replicas", "digests")
                require(
                    found is not None
                    and name in found.bookie_ids
                    and any((one, ledger_id, name) in self.reported for one in checks),
                    "N10" if by_list else "N13",
                    f"{name} lacks {missing} of ledger {ledger_id}, and {checks} report no hole",
                )


class CheckProcess:
    """Performs the effects of one machine."""

    def __init__(self, world: CopyWorld, name: str, machine: CheckMachine) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self._steps = 0

    def start(self) -> None:
        self._perform(self.machine.begin())

    def send(self, event: Any) -> None:
        self._perform(self.machine.handle(event))

    def _perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, StartTimer):
                self._later(effect.delay_ms * US, partial(self.send, TimerFired(effect.request)))
            elif isinstance(effect, m.CheckEnded):
                self.world.marks[f"{effect.kind.value} checked"] += 1
            elif isinstance(effect, m.StoreCheckTime):
                self._store(effect)
            else:
                if isinstance(effect, m.WriteHole):
                    self.world.note(self.name, effect)
                    self.world.hole_begins(self.name, effect)
                self._later(self._latency_us(), partial(self._execute, effect))

    def _execute(self, effect: Any) -> None:
        reply = self._reply_to(effect)
        self._later(self._latency_us(), partial(self.send, reply))

    def _reply_to(self, effect: Any) -> Any:  # noqa: PLR0911 - one for each effect
        world, store, request = self.world, self.world.store, effect.request
        is_up = store.is_up
        match effect:
            case m.ReadCluster():
                return m.ClusterRead(request, store.state() if is_up else None)
            case m.ReadRecords():
                ids = [one for one in sorted(store.records) if one > effect.after]
                page = [store.records[one] for one in ids[:3]]
                last = page[-1].ledger_id if page else effect.after
                return m.RecordsRead(request, is_up, page, (), last, is_end=len(ids) <= 3)
            case m.LoadRecords():
                found = [store.records[one] for one in effect.ledger_ids]
                return m.RecordsRead(request, is_up, found)
            case m.ListCopies():
                return self._listed(effect)
            case m.VerifyCopies():
                return self._verified(effect)
            case m.ReadCheckTime():
                began_us, after = world.times.get(effect.kind, (None, -1))
                elapsed_ms = None if began_us is None else (self.clock_us() - began_us) // US
                return m.CheckTimeRead(request, is_up, elapsed_ms, after)
            case m.WriteHole():
                names = frozenset(one.bookie_id for one in effect.holes)
                if is_up:
                    store.holes.add(effect.ledger_id, names)
                return m.NoteWritten(request, is_up)
            case m.WriteMark():
                store.marks.add(effect.ledger_id, frozenset(effect.bookie_ids))
                return m.NoteWritten(request, is_up)
            case _:
                raise AssertionError(effect)

    def _listed(self, effect: m.ListCopies) -> m.CopiesListed:
        world = self.world
        copies = world.of(effect.ledger_id, effect.bookie_id)
        if not world.has_lists[effect.bookie_id]:
            return m.CopiesListed(effect.request, m.ListOutcome.UNSUPPORTED)
        is_away = effect.bookie_id not in world.store.registered
        if copies.unknown_since_us is not None or is_away:
            world.marks["unknown list"] += 1
            return m.CopiesListed(effect.request, m.ListOutcome.UNKNOWN)
        return m.CopiesListed(effect.request, m.ListOutcome.LISTED, ranges_of(copies.held))

    def _verified(self, effect: m.VerifyCopies) -> m.CopiesVerified:
        """Read at most three of the entries."""
        world = self.world
        ledger_id = effect.record.ledger_id
        copies = world.of(ledger_id, effect.bookie_id)
        is_away = effect.bookie_id not in world.store.registered
        if copies.unknown_since_us is not None or is_away:
            before = effect.entry_ids[0] - 1
            return m.CopiesVerified(effect.request, before, is_unknown=True)
        ids = effect.entry_ids[:3]
        absent = [one for one in ids if one not in copies.held]
        damaged = [one for one in ids if one in copies.damaged]
        size_bytes = ENTRY_SIZE_BYTES * len(ids)
        world.count_read(size_bytes)
        return m.CopiesVerified(effect.request, ids[-1], absent, damaged, size_bytes=size_bytes)

    def clock_us(self) -> int:
        """The clock that dates checks: that of the store (LOGS.md#G12)."""
        return self.world.scheduler.now_us

    def _store(self, effect: m.StoreCheckTime) -> None:
        if self.world.store.is_up:
            began_us = self.world.scheduler.now_us if effect.is_complete else None
            before_us = self.world.times.get(effect.kind, (None, -1))[0]
            after = -1 if effect.is_complete else effect.after
            self.world.times[effect.kind] = (
                before_us if began_us is None else began_us,
                after,
            )  # type: ignore[assignment]

    def _later(self, delay_us: int, callback: Any) -> None:
        self.world.scheduler.call_later(delay_us, callback)

    def _latency_us(self) -> int:
        self._steps += 1
        return self.world.draws.integer(50, 800, self.name, "latency", self._steps)


def with_other(ensemble: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    """The ensemble with another bookie instead of one."""
    return tuple(new if each == old else each for each in ensemble)


def ranges_of(held: set[int]) -> list[tuple[int, int]]:
    """The first and the last id of each stretch."""
    ids = sorted(held)
    cuts = [0, *(n + 1 for n, (one, other) in enumerate(pairwise(ids)) if other != one + 1)]
    return [(ids[first], ids[end - 1]) for first, end in pairwise([*cuts, len(ids)]) if end > first]
