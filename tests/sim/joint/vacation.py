"""The shipped machine of vacations in the world of healing, whose time runs 1,000 times as fast.

One ms of the machine is one us of the world, so its quiet time of 60 s is 60 ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure
from ledgerlog_spark.protocol.autorecovery.vacate.share import is_named
from tests.sim.checker import require
from tests.sim.vacate.host import AuditorHost
from tests.sim.vacate.world import BOOKIE, SimVacation, State

if TYPE_CHECKING:
    from tests.sim.joint.world import JointWorld

LIST_AGE_MS_MAX = 50
"""Maximum age of a writer's list, in which a read-only bookie may still be writable. It is shorter
than 60 ms."""
NOTICED_MS = 40
"""The time between two looks of a writer at the members that leave."""


class VacationHost(AuditorHost):
    """An auditor that runs the machine, and checks the records when a vacation ends."""

    _world: VacationStage  # type: ignore[assignment]

    def _check_end(self, vacation: SimVacation) -> None:
        """AUTORECOVERY.md#Y6: no record that the last walk could see names the bookie.

        A writer's list is at most as old as the quiet time. A worker may name the bookie later.
        """
        super()._check_end(vacation)
        began_us = self._walk_began_ms
        named = [
            one for one in self._world.named() if self._world.written_us.get(one, 0) < began_us
        ]
        require(not named, "Y6", f"vacated, and ledgers {named} name {BOOKIE}")


class StageStore:
    """The nodes that the machine reads and writes."""

    def __init__(self, stage: VacationStage) -> None:
        self._stage = stage
        self._numbers = 0
        self.vacation: Versioned[SimVacation] | None = None
        self._past: list[tuple[int, State]] = []

    @property
    def now(self) -> State:
        world = self._stage.world
        bookie = world.bookies[BOOKIE]
        place = "read-only" if BOOKIE in world.read_only else "writable"
        return State(
            ledgers=dict(world.store.records),
            moves={one: note.number for one, note in world.store.notes["move"].items()},
            vacation=self.vacation,
            registered=place if bookie.is_registered else "absent",
            registration=2 * bookie.boots + (BOOKIE in world.read_only),
        )

    def remember(self) -> None:
        """Keep the state for replicas that lag. The state changes with each record."""
        self._past.append((self._stage.now_ms, self.now))

    def at(self, moment_ms: int) -> State:
        if not self._past or self._past[0][0] > moment_ms:
            return self.now if not self._past else self._past[0][1]
        return next(state for when, state in reversed(self._past) if when <= moment_ms)

    def change(self, *, moves: dict[int, int]) -> None:
        """Write the notes of moves whose numbers rise, and delete those that are gone."""
        notes = self._stage.world.store.notes["move"]
        for ledger_id, number in moves.items():
            if ledger_id not in notes or notes[ledger_id].number < number:
                self._stage.world.store.note("move", ledger_id, frozenset({BOOKIE}))
        for ledger_id in notes.keys() - moves.keys():
            if notes[ledger_id].bookies == {BOOKIE}:
                del notes[ledger_id]

    def write_vacation(
        self, vacation: SimVacation | None, *, has_cookie: bool = True
    ) -> Version | None:
        """Replace or delete the vacation, and perhaps delete the cookie in the same transaction."""
        self._numbers += 1
        version = None if vacation is None else Version(1, self._numbers)
        self.vacation = (
            None if vacation is None or version is None else Versioned(vacation, version)
        )
        if not has_cookie:
            self._stage.retire()
        if vacation is not None and vacation.departure.is_over:
            self._stage.world.checkers.mark(f"vacated by {vacation.kind}")
        return version


class VacationStage:
    """What the machine and its host see of the world, and the process of the bookie."""

    def __init__(self, world: JointWorld) -> None:
        self.world = world
        self.store = StageStore(self)
        self.counts: Counter[str] = Counter()
        self.returned_at_ms = -1
        self.is_calm = False
        self.written_us: dict[int, int] = {}
        self.leaves_since_us: int | None = None
        self._draws = 0

    @property
    def now_ms(self) -> int:
        return self.world.scheduler.now_us

    @property
    def is_on(self) -> bool:
        return self.store.vacation is not None

    @property
    def is_over(self) -> bool:
        found = self.store.vacation
        return found is None or found.value.departure.is_over

    def start(self) -> None:
        for name in ("vacations-0", "vacations-1"):
            VacationHost(self, name)  # type: ignore[arg-type]

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        if not self.world.is_over:
            self.world.scheduler.call_later(delay_ms, act)

    def draw_ms(self, low: int, high: int, *key: object) -> int:
        self._draws += 1
        return self.world.draws.integer(low, high, "vacation", self._draws, *key)

    def happens(self, part: float, *key: object) -> bool:
        self._draws += 1
        return self.world.draws.uniform("vacation", self._draws, *key) < part

    def note(self, name: str) -> None:
        self.counts[name] += 1

    def named(self) -> list[int]:
        records = self.world.store.records.items()
        return [ledger_id for ledger_id, found in records if is_named(found.value, BOOKIE)]

    # The operator and the bookie.

    def begin(self, kind: str) -> None:
        if not self.is_on:
            self.world.note("operator", f"begins to {kind} {BOOKIE}")
            self.world.checkers.mark(f"began to {kind}")
            departure = Departure(deletes_cookie=kind == "decommission")
            self.store.write_vacation(SimVacation(kind, departure))
            self.later(self.draw_ms(0, 2_000, "noticed"), self.notice)

    def cancel(self) -> None:
        if not self.is_over:
            self.world.note("operator", "cancels")
            self.world.checkers.mark("vacation cancelled")
            self.store.write_vacation(None)
            self.later(self.draw_ms(0, 2_000, "noticed"), self.notice)

    def notice(self) -> None:
        """AUTORECOVERY.md#Y2: the bookie notices its vacation, and is read-only while it is on."""
        found, world = self.store.vacation, self.world
        if found is not None and found.value.is_read_only:
            if BOOKIE not in world.read_only:
                world.read_only.add(BOOKIE)
                self.leaves_since_us = world.scheduler.now_us
                self._tell_writers()
        else:
            world.read_only.discard(BOOKIE)
            self.leaves_since_us = None
        self.store.remember()

    def _tell_writers(self) -> None:
        """An idle writer replaces a member that leaves."""
        if BOOKIE in self.world.read_only and not self.world.is_over:
            self.world.tell_lost(BOOKIE)
            self.later(NOTICED_MS * 1_000, self._tell_writers)

    def returns(self) -> None:
        """AUTORECOVERY.md#Y7: a bookie that starts writes its vacation before it registers."""
        found = self.store.vacation
        if found is None or self.is_over:
            return
        departure = replace(found.value.departure, returns=found.value.departure.returns + 1)
        self.store.write_vacation(replace(found.value, departure=departure))
        self.returned_at_ms = self.now_ms

    def retire(self) -> None:
        """The cookie is deleted. The operator formats the directory, unless it is named again."""
        world = self.world
        if world.wipe_spare(BOOKIE, is_fix=False, is_in_doubt=False):
            world.checkers.mark("formatted after its vacation")

    def is_seen_by_writers(self) -> bool:
        """Whether a writer's list may still show the bookie as writable."""
        since_us = self.leaves_since_us
        now_us = self.world.scheduler.now_us
        return since_us is None or now_us - since_us < LIST_AGE_MS_MAX * 1_000
