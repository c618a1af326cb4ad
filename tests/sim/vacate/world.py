"""A small cluster in virtual time, in which one bookie is taken out of service."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ledgerlog_spark.model import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure
from ledgerlog_spark.protocol.autorecovery.vacate.share import is_named
from tests.sim.checker import require
from tests.sim.draws import Draws

BOOKIE = "b0"
BOOKIES = tuple(f"b{number}" for number in range(6))
QUORUM = Quorum(3, 3, 2)
LIST_AGE_MS_MAX = 58_000
"""Maximum age of a writer's list of writable bookies."""
LAG_MS_MAX = 15_000
"""Maximum time by which the reads of a replica are behind."""


KINDS = ("drain", "decommission", "recover")


@dataclass(frozen=True)
class SimVacation:
    """The node of the vacation."""

    kind: str
    departure: Departure = field(default_factory=Departure)

    @property
    def is_read_only(self) -> bool:
        return self.kind != "recover"

    @property
    def forbids_starts(self) -> bool:
        return self.kind == "decommission" and self.departure.is_over


@dataclass(frozen=True)
class State:
    """The content of the metadata store at one moment."""

    ledgers: dict[int, Versioned[LedgerMetadata]] = field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()  # ledgers whose records cannot be decoded now
    moves: dict[int, int] = field(default_factory=dict)  # ledger -> version of the note
    marks: frozenset[int] = frozenset()  # Apache's queue of lost bookies
    vacation: Versioned[SimVacation] | None = None
    has_cookie: bool = True
    registered: str = "writable"  # the bookie: writable, read-only or absent
    registration: int = 0  # changes with each registration


class Store:
    """The metadata store. A replica shows an old state until it is synced."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.now = State()
        self._past: list[tuple[int, State]] = [(0, self.now)]
        self._versions = count(1)

    def change(self, **changes: object) -> None:
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]
        self._past.append((self._world.now_ms, self.now))

    def _version_after(self, before: Versioned[Any] | None) -> Version:
        number = next(self._versions)
        return Version(number if before is None else before.version.incarnation, number)

    def write_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        versioned = Versioned(metadata, self._version_after(self.now.ledgers.get(ledger_id)))
        self.change(ledgers={**self.now.ledgers, ledger_id: versioned})

    def write_vacation(self, vacation: SimVacation | None, **changes: object) -> Version | None:
        """Replace or delete the vacation, and change other nodes in the same transaction."""
        version = None if vacation is None else self._version_after(self.now.vacation)
        found = None if vacation is None or version is None else Versioned(vacation, version)
        self.change(vacation=found, **changes)
        return version

    def register(self, place: str) -> None:
        self.change(registered=place, registration=next(self._versions))

    def at(self, moment_ms: int) -> State:
        """The state of a replica at the time `moment_ms`."""
        return next(state for when, state in reversed(self._past) if when <= moment_ms)


class World:
    """One schedule: the time, the store, and everything that acts."""

    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)
        self.now_ms = 0
        self.seed = seed
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self.store = Store(self)
        self.is_calm = False  # after the last fault
        self.counts: dict[str, int] = {}
        self.next_ledger = count()
        self.running = True  # whether the process of the bookie runs
        self.vacated_at_ms: int | None = None
        self.returned_at_ms = -1  # when the bookie last wrote its vacation at a start

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), act))

    def run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, act = heapq.heappop(self._queue)
            act()
            self.check()

    def draw_ms(self, low: int, high: int, *key: object) -> int:
        return self.draws.integer(low, high, self.now_ms, next(self._numbers), *key)

    def happens(self, part: float, *key: object) -> bool:
        return self.draws.uniform(self.now_ms, next(self._numbers), *key) < part

    def note(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def named(self) -> Iterator[int]:
        """The ledgers that name the bookie now."""
        for ledger_id, found in self.store.now.ledgers.items():
            if is_named(found.value, BOOKIE):
                yield ledger_id

    def check(self) -> None:
        """AUTORECOVERY.md#Y6, AUTORECOVERY.md#Y7: check the state after each step."""
        state = self.store.now
        vacation = state.vacation
        is_vacated = vacation is not None and vacation.value.departure.is_over
        if is_vacated and self.vacated_at_ms is None:
            self.vacated_at_ms = self.now_ms
            named = list(self.named())
            require(not named, "Y6", f"vacated, and ledgers {named} name {BOOKIE}")
        require(
            state.has_cookie or is_vacated, "Y7", f"{BOOKIE} lost its cookie without being vacated"
        )


def new_ledger(ensemble: tuple[str, ...]) -> LedgerMetadata:
    return LedgerMetadata(QUORUM, (Fragment(0, ensemble),))


def closed(metadata: LedgerMetadata) -> LedgerMetadata:
    if metadata.state is LedgerState.CLOSED:
        return metadata
    return metadata.closed(last_entry_id=99, length=10_000)


def without(metadata: LedgerMetadata, replacement: str) -> LedgerMetadata:
    """The metadata with another bookie in each place of the vacated one."""
    fragments = tuple(
        Fragment(
            one.first_entry_id,
            tuple(replacement if name == BOOKIE else name for name in one.ensemble),
        )
        for one in metadata.fragments
    )
    return metadata.with_fragments(fragments)
