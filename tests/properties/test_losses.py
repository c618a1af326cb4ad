"""Losses become ripe exactly when a model says so that counts for each bookie, tick by tick.

One tick is 1 ms. The model has no timers: it counts for how long each bookie has been lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.protocol.autorecovery.audit.losses import (
    HELD_SESSIONS,
    NO_WAIT,
    Losses,
    WaitKind,
)
from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterState

SESSION_MS = 4
HOLD_MS = HELD_SESSIONS * SESSION_MS
FEW = [f"b{number}" for number in range(3)]
MANY = [*FEW, *(f"c{number}" for number in range(5))]
TICKS = 60


@dataclass
class Timers:
    """Performs the waits of the losses."""

    losses: Losses
    wait_at: int | None = None
    wait: object = NO_WAIT

    def observe(self, now: int, state: ClusterState) -> None:
        self.losses.observe(state, ())
        if self.losses.wait != self.wait:
            self.wait = self.losses.wait
            kind, duration = self.losses.wait.kind, self.losses.wait.duration_ms
            self.wait_at = None if kind is WaitKind.NONE else now + duration

    def fire(self, now: int, state: ClusterState) -> None:
        while self.wait_at is not None and self.wait_at <= now:
            self.losses.wait_is_over()
            self.wait, self.wait_at = NO_WAIT, None
            self.observe(now, state)


@dataclass
class Model:
    """Counts ticks. Without a storm: fewer than half of the bookies are lost."""

    hold_left: int = HOLD_MS
    lost_for: dict[str, int] = field(default_factory=dict)
    alone_for: int = 0
    alone: str = ""
    delay_ms: int = 0
    ripe: set[str] = field(default_factory=set)

    def tick(self, lost: frozenset[str], delay_ms: int) -> None:
        self.ripe &= lost
        self.hold_left -= 1
        new = sorted(lost - self.ripe)
        if self.hold_left >= 0:
            return
        is_single = len(new) == 1 and not self.ripe
        is_same = is_single and new[0] == self.alone
        self.alone_for = self.alone_for + 1 if is_same else 0
        self.alone = new[0] if is_single else ""
        is_over = is_same and self.alone_for >= self.delay_ms
        if delay_ms != self.delay_ms:
            self.alone_for = 0
        self.delay_ms = delay_ms
        if new and (not is_single or is_over or self.alone_for >= delay_ms):
            self.ripe |= set(new)
            self.alone = ""


HISTORY = st.lists(
    st.tuples(
        st.integers(1, TICKS - 1),
        st.one_of(st.sampled_from(FEW), st.sampled_from([0, 3, 7, 12])),
    ),
    max_size=14,
)
"""At a tick, a bookie changes between registered and lost, or the delay is written."""


@given(HISTORY, st.sampled_from([0, 5, 9]))
def test_losses_are_ripe_when_the_model_counts_them_as_ripe(
    history: list[tuple[int, str | int]], delay_ms: int
) -> None:
    timers, model = Timers(Losses(SESSION_MS)), Model(delay_ms=delay_ms)
    lost: set[str] = set()
    changes: dict[int, list[str | int]] = {}
    for at, change in history:
        changes.setdefault(at, []).append(change)
    writes = 0
    for now in range(TICKS):
        for change in changes.get(now, ()):
            if isinstance(change, str):
                lost ^= {change}
            elif change != delay_ms:  # the same delay again means "audit now"
                delay_ms, writes = change, writes + 1
        state = ClusterState(
            frozenset(MANY) - lost, frozenset(MANY), delay_ms=delay_ms, delay_writes=writes
        )
        timers.fire(now, state)
        timers.observe(now, state)
        model.tick(frozenset(lost), delay_ms)
        assert timers.losses.ripe == model.ripe, now
        assert set(timers.losses.lost) == lost


@given(HISTORY, st.sampled_from([0, 5]), st.integers(1, TICKS))
def test_after_an_outage_a_bookie_is_ripe_only_after_two_session_times(
    history: list[tuple[int, str | int]], delay_ms: int, outage: int
) -> None:
    """Three bookies, so that a loss of two is a storm, and the store is away once."""
    timers = Timers(Losses(SESSION_MS))
    lost: dict[str, int] = {}
    held_from = 0
    known = frozenset(FEW)
    for now in range(TICKS):
        toggled = [each for at, each in history if at == now and isinstance(each, str)]
        for name in FEW:
            if toggled.count(name) % 2 and lost.pop(name, None) is None:
                lost[name] = now
        if now == outage:
            timers.losses.store_was_away()
            timers.wait = NO_WAIT
            held_from = now
        state = ClusterState(known - set(lost), known, delay_ms=delay_ms)
        timers.fire(now, state)
        timers.observe(now, state)
        for bookie_id in timers.losses.ripe:
            assert now >= held_from + HOLD_MS
            assert now >= lost[bookie_id] + min(delay_ms, HOLD_MS)


@given(st.permutations(FEW), st.integers(0, 20))
def test_a_return_before_the_end_of_a_hold_leaves_nothing_ripe(
    order: list[str], back_after: int
) -> None:
    """All bookies are lost with the store, and return one after the other within the hold."""
    timers = Timers(Losses(SESSION_MS))
    known = frozenset(FEW)
    back: dict[str, int] = {
        name: 1 + (back_after + number) % (HOLD_MS - 1) for number, name in enumerate(order)
    }
    for now in range(3 * HOLD_MS):
        registered = frozenset(name for name, at in back.items() if at <= now)
        state = ClusterState(registered, known)
        timers.fire(now, state)
        timers.observe(now, state)
        assert not timers.losses.ripe
