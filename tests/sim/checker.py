"""The invariants L.. of docs/PROTOCOL.md, checked while a schedule runs and at its end.

The checker gets the answers of bookies, the events of clients and the changes of the store. It does
not rely on the state of any machine. All checks of a checker are about one ledger with one writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bookie_server.core.requests import StoredAdd, StoredRead
from ledgerlog_spark.model import (
    NO_ENTRY,
    Code,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.recover.recovery import (
    RETRIABLE,
    LedgerRecovery,
    RecoveryPhase,
)
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase
from ledgerlog_spark.protocol.ledger.write.writer import ADDING, LedgerWriter
from tests.sim.copies import Copies, Copy, Promise, head_of
from tests.sim.holes import Holes

if TYPE_CHECKING:
    from tests.sim.client import SimClient

OVERHEAD_BYTES = 36
_OF_FAILED_ADDS = (
    m.Failure.BOOKIE_FAILED,
    m.Failure.NOT_ENOUGH_BOOKIES,
    m.Failure.TOO_MANY_CHANGES,
)
FROZEN_MS_MAX = 500
"""The timers of a process may be late by this time, if the process is paused twice."""


class Violation(AssertionError):  # noqa: N818 - it is one
    """An invariant does not hold; `name` is the number of the invariant."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.name, self.message)


def require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise Violation(name, message)


def write_set(quorum: Quorum, entry_id: int) -> list[int]:
    """Return the write set by its definition, without the code under test."""
    return [(entry_id + step) % quorum.ensemble_size for step in range(quorum.write_quorum)]


class RecoverySeen:
    """The answers that one attempt of a recovery really got."""

    def __init__(self) -> None:
        self.absents: dict[int, set[int]] = {}
        self.presents: set[int] = set()
        self.acked: dict[int, set[str]] = {}
        self.asked: dict[int, tuple[str, int, int]] = {}
        self.added: dict[int, tuple[str, int, int]] = {}
        self.indexes: dict[int, int] = {}
        self.failed: set[int] = set()


def _written_to(machine: LedgerRecovery) -> tuple[str, ...]:
    """The bookies that a recovery writes back to; empty before it begins to write back."""
    pipeline = machine._tail.write_back.pipeline if machine._tail is not None else None
    return pipeline.ensemble if pipeline is not None else ()


class Checker:
    """All invariants of one ledger.

    Attributes:
        confirmed: Payloads by entry id, of all entries that the writer confirmed to its
            application.
        marks: Situations that occurred, and how often.
        on_stored: Called with the first entry of each run that a bookie stored, before the bookie
            sends its answer.
    """

    def __init__(self, marks: dict[str, int] | None = None) -> None:
        self.copies = Copies()
        self.payloads: dict[int, bytes] = {}
        self.confirmed: dict[int, bytes] = {}
        self.last_confirmed = NO_ENTRY
        self.records: list[tuple[str, Versioned[LedgerMetadata]]] = []
        self.stored: dict[int, dict[str, bytes]] = {}
        self.fenced: dict[str, bool] = {}
        self.ends: dict[str, tuple[int, int]] = {}
        self.writer_saw_fence = False
        self.writers: set[str] = set()
        self.added_us: dict[int, int] = {}
        self.is_deleted = False
        self.changes = 0
        self.marks: dict[str, int] = {} if marks is None else marks
        self.on_stored: Callable[[int], None] | None = None
        self._lengths: list[int] = []
        self._reading: dict[str, int] = {}
        self._recoveries: dict[str, RecoverySeen] = {}
        self._closes: list[tuple[LedgerMetadata, RecoverySeen]] = []
        self._closes_sent: list[tuple[str, LedgerMetadata]] = []
        self._chosen: dict[str, Counter[str]] = {}
        self._adds_sent: dict[tuple[str, int], tuple[int, str]] = {}
        self._adds_failed: dict[str, set[tuple[int, str]]] = {}
        self._changes_of: Counter[str] = Counter()
        self._lacs_heard: set[str] = set()
        self._closes_denied: list[LedgerMetadata] = []
        self.holes = Holes()

    def mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    @property
    def record(self) -> LedgerMetadata:
        """The ledger metadata in the store."""
        return self.records[-1][1].value

    @property
    def was_closed(self) -> bool:
        """Whether the ledger was closed at any time."""
        return self.record.is_closed

    def add_answered(
        self, bookie: str, request: StoredAdd, code: Code, sent: Sequence[Copy]
    ) -> None:
        if code is Code.FENCED:
            require(
                self.is_deleted or self.record.state is not LedgerState.OPEN,
                "L31",
                f"{bookie} answers {request.entry_ids[0]} with FENCED, the ledger is OPEN",
            )
        if code is not Code.OK:
            return
        if not request.is_recovery:
            require(
                not self.fenced.get(bookie, False),
                "L14",
                f"{bookie} answered a fence and then took entry {request.entry_ids[0]}",
            )
        self.copies.acknowledge(bookie, sent)
        for copy in sent:
            self._stored(bookie, copy.stored)
        if self.on_stored is not None:
            self.on_stored(request.entry_ids[0])

    def _stored(self, bookie: str, stored: bytes) -> None:
        _, entry_id, lac, length = head_of(stored)
        payload = stored[OVERHEAD_BYTES:]
        require(
            payload == self.payloads.get(entry_id),
            "L6",
            f"{bookie} stored {payload!r} as entry {entry_id}",
        )
        # Apache's worker writes the LAC of its time into the header of a copy.
        end = self.record.last_entry_id if self.record.is_closed else self.last_confirmed
        require(
            lac <= max(entry_id - 1, end) and length == self.length_of(entry_id),
            "L6",
            f"{bookie} stored entry {entry_id} with LAC {lac} and length {length}",
        )
        self.stored.setdefault(entry_id, {})[bookie] = payload

    def length_of(self, entry_id: int) -> int:
        """Return the sum of the payload bytes up to and including an entry."""
        while len(self._lengths) <= entry_id:
            before = self._lengths[-1] if self._lengths else 0
            self._lengths.append(before + len(self.payloads[len(self._lengths)]))
        return self._lengths[entry_id] if entry_id >= 0 else 0

    def read_answered(
        self,
        bookie: str,
        request: StoredRead,
        code: Code,
        stored: bytes | None,
        promise: Promise,
    ) -> None:
        if request.fence_key is not None and (code is Code.OK or code.is_absent):
            self.fenced[bookie] = True
        if not self.is_deleted:
            denied = self.copies.denied(promise, code, stored)
            require(not denied, "L32", f"{bookie} {denied}")
        if stored is not None:
            self._served(bookie, stored, promise)

    def batch_answered(
        self, bookie: str, code: Code, stored: Sequence[bytes], promise: Promise
    ) -> None:
        if not self.is_deleted:
            denied = self.copies.denied(promise, code, stored[0] if stored else None)
            require(not denied, "L32", f"{bookie} {denied}")
        for number, one in enumerate(stored):
            entry_id = head_of(one)[1]
            require(
                entry_id == promise.entry_id + number,
                "L6",
                f"{bookie} serves entry {entry_id} at place {number} from {promise.entry_id} on",
            )
            # The bookie looks for the first entry only, and sends the entries that follow it in the
            # same record, even if it has a newer copy of them. All copies have the same payload.
            self._served(bookie, one, promise, is_newest=number == 0)

    def _served(
        self, bookie: str, stored: bytes, promise: Promise, *, is_newest: bool = True
    ) -> None:
        wrong = self.copies.wrong_bytes(bookie, stored, promise.asked if is_newest else 0)
        require(not wrong, "L6", f"{bookie} serves {stored[OVERHEAD_BYTES:]!r}: {wrong}")
        self.lac_served(bookie, head_of(stored)[2])

    def lac_answered(self, bookie: str, code: Code, lac: int, promise: Promise) -> None:
        self.lac_served(bookie, lac)
        if self.is_deleted or not (code is Code.OK or code.is_absent):
            return
        require(lac >= promise.lac, "L33", f"{bookie} answers LAC {lac}, it had {promise.lac}")

    def lac_served(self, who: str, lac: int) -> None:
        limit = self.last_confirmed
        if self.record.is_closed:
            limit = self.record.last_entry_id
        require(lac <= limit, "L9", f"{who} serves LAC {lac}, above {limit}")

    def around_handle(self, client: SimClient, event: Any) -> list[Any]:
        """Let the machine handle an event, and check the effects."""
        effects = self._around_handle(client, event)
        for effect in effects:
            if type(effect) is m.LoadMetadata:
                require(effect.sync_first, "L27", f"{client.name} settles on a stale record")
            elif type(effect) is m.CasMetadata and effect.metadata.is_closed:
                self._closes_sent.append((client.name, effect.metadata))
        return effects

    def _around_handle(self, client: SimClient, event: Any) -> list[Any]:
        machine = client.machine
        if isinstance(machine, LedgerRecovery):
            return self._around_recovery(client, machine, event)
        if isinstance(machine, LedgerWriter):
            if type(event) is m.AddReplied and event.code is Code.FENCED:
                # The answer of a bookie that the writer has replaced does not count.
                self.writer_saw_fence |= event.request in machine._pipeline._sent
            if type(event) is m.AddReplied and event.code is not Code.OK:
                place = self._adds_sent[client.name, event.request]
                self._adds_failed.setdefault(client.name, set()).add(place)
            if type(event) is m.MemberLost:
                self.holes.absent.add(event.bookie_id)
            if type(event) is m.TimerFired and event.request == machine._retry_timer:
                self._chosen.pop(client.name, None)
            before, was_adding = machine.last_add_confirmed, machine.phase in ADDING
            effects = machine.handle(event)
            require(machine.last_add_confirmed >= before, "L8", "the writer's LAC fell")
            if was_adding and machine.phase not in ADDING:
                sends = [one for one in client._open.values() if type(one) is m.SendAdd]
                self.holes.on_their_way[client.name] = sends
            self.writers.add(client.name)
            self._require_confirmed(machine)
            if type(event) is m.BookiesListed:
                chosen = self._chosen.setdefault(client.name, Counter())
                self._require_fresh_bookies(machine, event.candidates, effects, chosen)
                self._require_failed_bookies(client, effects)
            return effects
        if type(event) is m.LacReplied and (event.code is Code.OK or event.code.is_absent):
            self._lacs_heard.add(client.name)
        others: list[Any] = machine.handle(event)
        return others

    @staticmethod
    def _require_confirmed(machine: LedgerWriter) -> None:
        """Check PROTOCOL.md#V2: a run with its ack quorum does not wait for another event."""
        pipeline = machine._pipeline
        if machine.phase is WriterPhase.OPEN and pipeline._unconfirmed:
            oldest = pipeline._unconfirmed[0]
            is_waiting = pipeline._has_quorum(oldest, oldest.acked)
            require(not is_waiting, "V2", f"{oldest} has its ack quorum and is not confirmed")

    def _require_fresh_bookies(
        self,
        machine: LedgerWriter,
        candidates: Sequence[str],
        effects: Sequence[Any],
        chosen: Counter[str],
    ) -> None:
        """Check PROTOCOL.md#L36 for the bookies that an ensemble change chooses.

        A bookie that failed this ledger is chosen only if no other bookie was listed. No bookie is
        chosen more than three times between two pauses of the writer; `chosen` counts this.
        """
        changes = [effect.metadata for effect in effects if type(effect) is m.CasMetadata]
        if not changes:
            return
        before = set(machine._pipeline.ensemble)  # recovery may have changed the record
        after = set(changes[0].last_fragment.ensemble)
        failures = machine._failed.counts
        left = [n for n in candidates if n not in before | after and not failures.get(n, 0)]
        for name in after - before:
            is_fresh = not failures.get(name, 0) or not left
            require(is_fresh, "L36", f"{name} failed before and is chosen, {left} never did")
            chosen[name] += 1
            require(chosen[name] <= 3, "L36", f"{name} is chosen 4 times without a pause")

    def _require_failed_bookies(self, client: SimClient, effects: Sequence[Any]) -> None:
        """Check PROTOCOL.md#L36: only a bookie that failed an add, or that the writer was told to
        be absent, is replaced."""
        failed = self._adds_failed.get(client.name, set())
        before = list(enumerate(client.machine._pipeline.ensemble))  # recovery may have changed it
        for effect in effects:
            if type(effect) is m.CasMetadata:
                after = set(enumerate(effect.metadata.last_fragment.ensemble))
                well = [place for place in before if place not in after and place not in failed]
                well = [place for place in well if place[1] not in self.holes.absent]
                require(not well, "L36", f"{client.name} replaces {well}, which did not fail")

    def _around_recovery(self, client: SimClient, machine: LedgerRecovery, event: Any) -> list[Any]:
        seen = self._recoveries.setdefault(client.name, RecoverySeen())
        if type(event) is m.ReadReplied and event.request in seen.asked:
            _, index, entry_id = seen.asked[event.request]
            if event.code.is_absent:
                seen.absents.setdefault(entry_id, set()).add(index)
            if event.code is Code.OK and machine.phase is RecoveryPhase.READING:
                seen.presents.add(entry_id)
        if type(event) is m.AddReplied and event.code is Code.OK and event.request in seen.added:
            bookie_id, first, last = seen.added[event.request]
            for entry_id in range(first, last + 1):
                seen.acked.setdefault(entry_id, set()).add(bookie_id)
        if type(event) is m.AddReplied and event.code is not Code.OK:
            seen.failed.add(seen.indexes.get(event.request, -1))
        phase, ensemble = machine.phase, _written_to(machine)
        effects = machine.handle(event)
        after = _written_to(machine)
        if type(event) is m.BookiesListed and ensemble and after:
            well = [i for i, one in enumerate(ensemble) if one != after[i] and i not in seen.failed]
            require(not well, "L36", f"{client.name} replaces {well}, which did not fail")
        if phase is RecoveryPhase.FENCING and machine.phase is RecoveryPhase.READING:
            self._require_coverage(client.name)
        if machine.phase is RecoveryPhase.LOADING and phase is not RecoveryPhase.LOADING:
            self._recoveries[client.name] = seen = RecoverySeen()
            if phase is RecoveryPhase.WAITING:
                self.mark("recovery tried again")
        for effect in effects:
            if type(effect) is m.SendRead:
                require(effect.fence, "L16", f"{client.name} reads {effect.entry_id} unfenced")
            if type(effect) is m.SendRead and effect.entry_id >= 0:
                seen.asked[effect.request] = (effect.bookie_id, effect.index, effect.entry_id)
            elif type(effect) is m.CasMetadata and effect.metadata.is_closed:
                self._closes.append((effect.metadata, seen))
            elif type(effect) is m.SendAdd:
                run = effect.run
                seen.indexes[effect.request] = effect.index
                seen.added[effect.request] = (
                    effect.bookie_id,
                    run.first_entry_id,
                    run.last_entry_id,
                )
        return effects

    def _require_coverage(self, name: str) -> None:
        """Check PROTOCOL.md#L16: bookies that did not answer a fence cannot form an ack quorum."""
        metadata = self.record
        ensemble = metadata.last_fragment.ensemble
        if metadata.is_closed:
            return
        quorum = metadata.quorum
        for residue in range(quorum.ensemble_size):
            free = [
                i for i in write_set(quorum, residue) if not self.fenced.get(ensemble[i], False)
            ]
            require(
                len(free) < quorum.ack_quorum,
                "L16",
                f"{name} reads although {[ensemble[i] for i in free]} are not fenced",
            )

    def add_sent(self, client: SimClient, effect: m.SendAdd) -> None:
        run = effect.run
        require(
            run.last_add_confirmed < run.first_entry_id,
            "L8",
            f"{client.name} sends entry {run.first_entry_id} under LAC {run.last_add_confirmed}",
        )
        if effect.is_recovery:
            return
        self._adds_sent[client.name, effect.request] = effect.index, effect.bookie_id
        require(
            run.last_add_confirmed <= self.last_confirmed,
            "L8",
            f"the writer sends LAC {run.last_add_confirmed}, it confirmed {self.last_confirmed}",
        )
        ensemble = self.record.fragment_of(run.first_entry_id).ensemble
        is_named = ensemble[effect.index] == effect.bookie_id
        require(
            self.was_closed or is_named or self._was_named(run.first_entry_id, effect),
            "L26",
            f"entry {run.first_entry_id} is sent to {effect.bookie_id} at {effect.index}, the "
            f"record names {ensemble}",
        )
        is_hole = self.holes.is_reported(client.name, effect.bookie_id, run.first_entry_id)
        about = f"{client.name} sends {effect.bookie_id} entry {run.first_entry_id} of a hole"
        require(not is_hole, "L26", about)

    def _was_named(self, _entry_id: int, _effect: m.SendAdd) -> bool:
        """Whether the writer may not have noticed that another client replaced the bookie."""
        return False

    def indicated(self, client: SimClient, effect: Any) -> None:
        kind = type(effect)
        if kind is m.RunConfirmed:
            self._confirmed(effect)
            self._require_in_time(client, effect)
        elif kind is m.EnsembleChanged:
            self._changes_of[client.name] += 1
            made, allowed = self._changes_of[client.name], client.world.options.ensemble_changes_max
            require(made <= allowed, "V12", f"{client.name} made {made} changes, not {allowed}")
            self.mark("ensemble changed")
            if effect.returned:
                self.mark("absent bookie returned")
            self.changes += 1
            if self.changes == 3:
                self.mark("three ensemble changes")
        elif kind is m.HolesLeft:
            self.mark("holes reported")
            self.holes.report(client.name, effect.holes)
        elif kind is m.LedgerClosed:
            self._closed(client, effect.versioned.value)
        elif kind is m.EntriesRead:
            self._read(client, effect)
        elif kind is m.LedgerFailed:
            self.mark(f"failed {effect.failure.name}")
            self._require_met(client, effect.failure)
            if isinstance(client.machine, LedgerWriter):
                self._writer_failed(client, effect)
                self._require_no_quorum(client.name, effect)
            elif isinstance(client.machine, LedgerRecovery) and effect.failure in RETRIABLE:
                made, allowed = client.machine.attempts, client.machine._settings.retry.attempts_max
                require(made >= allowed, "L37", f"{client.name} gives up after {made} attempts")
            if effect.is_definite:
                self._denies_its_close(client, effect)
        elif kind is m.LacRead:
            self.lac_served(client.name, effect.last_add_confirmed)
            is_heard = client.name in self._lacs_heard or client.machine._metadata.is_closed
            require(is_heard, "L33", f"{client.name} reports a LAC, and no bookie reported any")
            is_early = client.machine._waits_for_all and client.machine._sent
            require(not is_early, "L33", f"{client.name} reports a LAC before everybody answered")
            known = client.machine._metadata.last_fragment.first_entry_id - 1
            lac = effect.last_add_confirmed
            require(lac >= known, "L33", f"{client.name} reads LAC {lac}, its record shows {known}")
        elif kind is m.RangeRead:
            machine = client.machine
            end = self._reading.get(client.name, 0) - 1
            require(
                end == machine.last_entry_id,
                "L34",
                f"{client.name} read to {end} and reports {machine.last_entry_id} as read",
            )

    def _require_met(self, client: SimClient, failure: m.Failure) -> None:
        """Check that the reported failure happened to this client, and not only at this time."""
        name, about = client.name, f"{client.name} reports {failure.name}"
        if failure is m.Failure.LAC_UNKNOWN:
            require(name not in self._lacs_heard, "L33", f"{about}, a bookie told it a LAC")
        elif isinstance(client.machine, LedgerWriter) and failure in _OF_FAILED_ADDS:
            is_met = bool(self._adds_failed.get(name) or self.holes.absent)
            require(is_met, "L35", f"{about}, and no add of it failed")

    def _require_no_quorum(self, name: str, failed: m.LedgerFailed) -> None:
        """Check PROTOCOL.md#L35: a writer ends for want of bookies only without an ack quorum."""
        if failed.failure is not m.Failure.NOT_ENOUGH_BOOKIES:
            return
        quorum, ensemble = self.record.quorum, self.record.last_fragment.ensemble
        sets = [write_set(quorum, entry_id) for entry_id in range(quorum.ensemble_size)]
        left = [[i for i in one if ensemble[i] not in failed.bookie_ids] for one in sets]
        is_short = any(len(one) < quorum.ack_quorum for one in left)
        require(is_short, "L35", f"{name} gives up without {failed.bookie_ids} of {ensemble}")

    def _confirmed(self, effect: m.RunConfirmed) -> None:
        record = self.record
        first, last = effect.first_entry_id, effect.last_entry_id
        require(
            first == self.last_confirmed + 1,
            "L7",
            f"{first}..{last} is confirmed after {self.last_confirmed}",
        )
        require(not self.writer_saw_fence, "L28", f"{first}..{last} is confirmed after FENCED")
        require(
            not record.is_closed or last <= record.last_entry_id,
            "L2",
            f"{last} is confirmed, the ledger is closed at {record.last_entry_id}",
        )
        for entry_id in range(first, last + 1):
            ensemble = record.fragment_of(entry_id).ensemble
            holders = self.stored.get(entry_id, {})
            have = [i for i in write_set(record.quorum, entry_id) if ensemble[i] in holders]
            require(
                len(have) >= record.quorum.ack_quorum or self.is_deleted,
                "L4",
                f"{entry_id} is confirmed, on {sorted(holders)}; the record names {ensemble}",
            )
            self.confirmed[entry_id] = self.payloads[entry_id]
        self.last_confirmed = last
        if record.state is not LedgerState.OPEN:
            self.mark("confirmed while not open")

    def _require_in_time(self, client: SimClient, effect: m.RunConfirmed) -> None:
        """Check PROTOCOL.md#V12: after the time limit for an ack quorum, nothing is confirmed."""
        allowed_ms = client.world.options.add_quorum_timeout_ms
        if allowed_ms is not None:
            added_us = self.added_us[effect.first_entry_id]
            waited_ms = (client.world.scheduler.now_us - added_us) // 1_000
            is_late = waited_ms > 2 * allowed_ms + FROZEN_MS_MAX
            about = f"{client.name} confirms {effect.first_entry_id} after {waited_ms} ms"
            require(not is_late, "V12", about)

    def _denies_its_close(self, client: SimClient, failed: m.LedgerFailed) -> None:
        """Check PROTOCOL.md#L27: a close that is reported as not done never takes effect."""
        closed_by = self.records[-1][0] if self.record.is_closed else None
        require(
            closed_by != client.name,
            "L27",
            f"{client.name} closed the ledger and reports {failed.failure.name} as definite",
        )
        self._closes_denied += [one for name, one in self._closes_sent if name == client.name]

    def _writer_failed(self, client: SimClient, failed: m.LedgerFailed) -> None:
        """Check what a failed writer reports of its entries (PROTOCOL.md#L27, PROTOCOL.md#A10)."""
        sent = client.machine.next_entry_id - 1
        unknown = self.last_confirmed + 1 if sent > self.last_confirmed else None
        require(
            (failed.last_add_confirmed, failed.first_unknown_entry_id)
            == (self.last_confirmed, unknown),
            "L27",
            f"{client.name} reports {failed}, it confirmed {self.last_confirmed} and sent {sent}",
        )
        is_true = unknown is None or not failed.is_definite
        require(is_true, "L27", f"{client.name} reports {failed} as definite, it sent {sent}")
        self._require_empty_window(client)

    @staticmethod
    def _require_empty_window(client: SimClient) -> None:
        left = client.machine._pipeline.entries_in_flight
        require(not left, "V9", f"{client.name} has ended with {left} entries in flight")

    def _closed(self, client: SimClient, metadata: LedgerMetadata) -> None:
        self.ends[client.name] = end = (metadata.last_entry_id, metadata.length)
        record = self.record
        if isinstance(client.machine, LedgerRecovery):
            floor = client.machine._floor_entry_id
            require(end[0] >= floor, "L35", f"{client.name} reports the end {end[0]} below {floor}")
        require(
            record.is_closed and end == (record.last_entry_id, record.length),
            "L23",
            f"{client.name} reports the end {end}, the record says {record.last_entry_id}",
        )
        is_own = self.records[-1][0] == client.name
        if isinstance(client.machine, LedgerRecovery) and is_own:
            self._require_written_back_reported(client)
        if isinstance(client.machine, LedgerWriter):
            require(
                metadata.last_entry_id == self.last_confirmed,
                "L1",
                f"the writer closed at {metadata.last_entry_id}, confirmed {self.last_confirmed}",
            )
            self._require_empty_window(client)
            if is_own:
                self._require_holes_reported(client)

    def _require_written_back_reported(self, client: SimClient) -> None:
        """Check PROTOCOL.md#L41 for what a recovery wrote back to some bookies of the record."""
        record, sent = self.record, self._recoveries[client.name].added.values()
        for entry_id in sorted({one for _, first, last in sent for one in range(first, last + 1)}):
            ensemble = record.fragment_of(entry_id).ensemble
            for bookie_id in (ensemble[i] for i in write_set(record.quorum, entry_id)):
                require(
                    bookie_id in self.stored.get(entry_id, {})
                    or self.holes.is_reported(client.name, bookie_id, entry_id),
                    "L41",
                    f"{client.name} closes, {bookie_id} lacks {entry_id}, which is not reported",
                )

    def _require_holes_reported(self, client: SimClient) -> None:
        """Check PROTOCOL.md#L41: what a bookie lacks is in a report, or is still on its way."""
        record = self.record
        sent = self.holes.on_their_way[client.name]
        for entry_id in range(record.last_entry_id + 1):
            ensemble = record.fragment_of(entry_id).ensemble
            holders = self.stored.get(entry_id, {})
            for bookie_id in (ensemble[i] for i in write_set(record.quorum, entry_id)):
                is_on_its_way = any(
                    one.bookie_id == bookie_id
                    and one.run.first_entry_id <= entry_id <= one.run.last_entry_id
                    for one in sent
                )
                require(
                    bookie_id in holders
                    or is_on_its_way
                    or self.holes.is_reported(client.name, bookie_id, entry_id),
                    "L41",
                    f"{client.name} closes, {bookie_id} lacks {entry_id}, which is not reported",
                )

    def _read(self, client: SimClient, effect: m.EntriesRead) -> None:
        following = self._reading.get(client.name, 0)
        for entry in effect.entries:
            require(
                entry.entry_id == following,
                "L34",
                f"{client.name} reads entry {entry.entry_id} where {following} follows",
            )
            following += 1
            require(
                bytes(entry.payload) == self.payloads.get(entry.entry_id),
                "L3",
                f"{client.name} reads {entry.payload!r} as entry {entry.entry_id}",
            )
        self._reading[client.name] = following
        self.mark("entries read")

    def created(self, record: Versioned[LedgerMetadata], absent: Sequence[str] = ()) -> None:
        """Record a new ledger. Check PROTOCOL.md#L42: it names few enough absent bookies."""
        self.records.append(("creator", record))
        self.holes.absent |= set(absent)
        quorum, ensemble = record.value.quorum, record.value.last_fragment.ensemble
        for entry_id in range(quorum.ensemble_size):
            away = [i for i in write_set(quorum, entry_id) if ensemble[i] in absent]
            allowed = quorum.write_quorum - quorum.ack_quorum
            require(
                len(away) <= allowed,
                "L42",
                f"a new ledger names {sorted(absent)} in {ensemble}, in a write set {len(away)}",
            )
        if absent:
            self.mark("absent bookie in a new ledger")

    def written(
        self,
        client: str,
        _ledger_id: int,
        before: Versioned[LedgerMetadata],
        after: Versioned[LedgerMetadata],
    ) -> None:
        self.records.append((client, after))
        old, new = before.value, after.value
        is_denied = any(one is new for one in self._closes_denied)
        require(not is_denied, "L27", f"{client} closes the ledger, which it reported as not done")
        require(
            old.state <= new.state and old.state is not LedgerState.CLOSED,
            "L12",
            f"{client} turned {old.state.name} into {new.state.name}",
        )
        require(
            old.state is LedgerState.OPEN or client not in self.writers,
            "L12",
            f"{client}, the writer, wrote over a ledger that is {old.state.name}",
        )
        self._require_valid_fragments(client, new)
        if new.state is not LedgerState.CLOSED:
            if new.fragments != old.fragments:
                require(
                    new.state is LedgerState.OPEN and old.state is LedgerState.OPEN,
                    "L20",
                    f"{client} wrote fragments while the ledger is in recovery",
                )
                self._require_old_fragments(client, old, new)
                require(
                    new.last_fragment.first_entry_id == self.last_confirmed + 1,
                    "L10",
                    f"a fragment from {new.last_fragment.first_entry_id} on, confirmed "
                    f"{self.last_confirmed}",
                )
            return
        require(
            new.last_entry_id >= self.last_confirmed,
            "L1",
            f"{client} closed at {new.last_entry_id}, the writer confirmed {self.last_confirmed}",
        )
        length = sum(len(self.payloads[e]) for e in range(new.last_entry_id + 1))
        require(new.length == length, "L1", f"closed with length {new.length}, not {length}")
        for entry_id in range(new.last_entry_id + 1):
            self._require_copies(client, new, entry_id)
        for fragment in new.fragments[1:]:
            first = fragment.first_entry_id
            is_needed = first <= new.last_entry_id
            require(is_needed, "L10", f"{client} closed before its fragment from {first} on")
        if client in self._recoveries:
            self._require_recovered(client, old, new)

    def _require_old_fragments(self, client: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Check PROTOCOL.md#L10: a fragment with confirmed entries never gets another ensemble."""
        fixed = [one for one in old.fragments if one.first_entry_id <= self.last_confirmed]
        changed = [one for one in fixed if one not in new.fragments]
        require(not changed, "L10", f"{client} changed {changed}, which has confirmed entries")

    def _require_copies(self, client: str, closed: LedgerMetadata, entry_id: int) -> None:
        ensemble = closed.fragment_of(entry_id).ensemble
        holders = self.stored.get(entry_id, {})
        have = [i for i in write_set(closed.quorum, entry_id) if ensemble[i] in holders]
        require(
            len(have) >= closed.quorum.ack_quorum,
            "L5",
            f"{client} closed over {entry_id}, on {sorted(holders)}, not in {ensemble}",
        )

    def _require_valid_fragments(self, client: str, metadata: LedgerMetadata) -> None:
        firsts = [fragment.first_entry_id for fragment in metadata.fragments]
        rising = all(left < right for left, right in pairwise(firsts))
        require(
            firsts[0] == 0 and rising, "L10", f"{client} wrote fragments that begin at {firsts}"
        )
        for fragment in metadata.fragments:
            require(
                len(set(fragment.ensemble)) == metadata.quorum.ensemble_size,
                "L10",
                f"{client} wrote the ensemble {fragment.ensemble}",
            )

    def _require_recovered(self, client: str, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Check PROTOCOL.md#L18 and PROTOCOL.md#L22 with the answers that the recovery really got.

        The write of an attempt that gave up may be applied later. It is checked with the answers of
        that attempt.
        """
        seen = next(seen for metadata, seen in self._closes if metadata is new)
        quorum, end = new.quorum, new.last_entry_id + 1
        members = set(write_set(quorum, end))
        absents = seen.absents.get(end, set()) & members
        needed = quorum.write_quorum - quorum.ack_quorum + 1
        require(
            len(absents) >= needed,
            "L18",
            f"{client} closed before {end}, which {len(absents)} of {needed} called absent",
        )
        first = min(seen.presents, default=end)
        for entry_id in range(first, end):
            ensemble = new.fragment_of(entry_id).ensemble
            named = {ensemble[i] for i in write_set(quorum, entry_id)}
            acked = seen.acked.get(entry_id, set()) & named
            require(
                entry_id <= old.last_fragment.first_entry_id - 1
                or len(acked) >= quorum.ack_quorum
                or entry_id not in seen.presents,
                "L22",
                f"{client} closed over {entry_id}, acknowledged to it by {sorted(acked)}",
            )
        self.mark("closed by recovery")
        if len(absents) == needed:
            self.mark("absent by exactly a negative quorum")
