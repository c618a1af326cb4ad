"""Schedules in which a log is deleted under leaders that watch its head (LOGS.md#J12)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.log import messages as m
from tests.sim.leader.world import WATCH_MS_MAX, LeaderWorld, drawn_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.sim.leader.leader import Append, SimLeader
    from tests.sim.log.store import State
    from tests.sim.log.world import Actor

LATE_MS = 90
LEARNS_MS_MAX = WATCH_MS_MAX + 15 + 100 + 15 + 2 * LATE_MS
"""Maximum time until a leader learns of the deletion: the watch, a read that failed before the
deletion, the delay after it, and a read that succeeds."""
LONGEST_PAUSE_MS = 600
RARE_ROLLS = {"rollBytes": "50000", "rollMs": "100000"}
"""With these properties, a leader has no other reason to read the head for a long time."""


class WatchedWorld(LeaderWorld):
    """Leaders whose log is deleted.

    Attributes:
        known_ms: Time from which the store could be reached again after the deletion.
    """

    known_ms = 0

    def check_change(self, request: Any, old: State, new: State) -> None:
        super().check_change(request, old, new)
        if isinstance(request, m.WriteHead):
            self.require(not old.head.value.deleted_ms, "a deleted log was changed")

    def check_acknowledged(self, leader: SimLeader, number: int, append: Append) -> None:
        super().check_acknowledged(leader, number, append)
        if self.deleted_ms is None:
            return
        learns_ms = max(self.known_ms, leader.resumed_ms) + LEARNS_MS_MAX
        self.require(
            append.started_ms <= learns_ms, f"leader {leader.number} goes on in a deleted log"
        )

    def _write_head(self, **changes: Any) -> None:
        """Change the head, as another program does, without a fault."""
        head, version = self.store.state.head.value, self.store.state.head.version
        changed = replace(head, token=self.new_token(), **changes)
        self.store._apply(m.WriteHead(changed.token, changed, version))

    def deleter(self) -> Actor:
        """Delete the log, perhaps during an outage. After this, no more faults happen."""
        yield self.sleep(self.random.randint(30, 700) + self.extra.choice((0, 300)))
        if self.extra.random() < 0.8:
            self._write_head()  # so that leaders read the head while the log is deleted
            yield self.sleep(self.extra.randint(1, WATCH_MS_MAX + 15))
        self.heal()
        self._write_head(deleted_ms=self.now)
        outage_ms = self.extra.choice((0, 0, 60, 300))
        self.deleted_ms, self.known_ms = self.now, self.now + outage_ms
        self.store.out_until = self.known_ms
        yield self.sleep(outage_ms + LEARNS_MS_MAX)
        self._check_learned(leader for leader in self.leaders if leader.resumed_ms <= self.known_ms)
        yield self.sleep(LONGEST_PAUSE_MS)
        self._check_learned(self.leaders)

    def _check_learned(self, leaders: Iterable[SimLeader]) -> None:
        for leader in leaders:
            self.require(
                leader.has_ended or leader.machine.phase is LeaderPhase.NEW or not leader.is_free,
                f"leader {leader.number} never learned that its log is gone",
            )


def deleted_schedule(seed: int) -> WatchedWorld:
    """Run one schedule to its end."""
    properties = drawn_properties(Random(seed * 31 + 7))
    world = WatchedWorld(
        seed, properties | Random(seed * 59 + 3).choice(({}, RARE_ROLLS, RARE_ROLLS))
    )
    random = world.random
    world.store.late_ms = world.extra.choice((0, LATE_MS, LATE_MS))
    world.store.extra = world.extra
    world.behind_probability = world.extra.choice((0, 0.1))
    world.ledgers.break_probability = random.choice((0, 0.01, 0.06))
    world.store.loss = random.choice((0, 0, 0.3))
    world.store.silence = random.choice((1, 1, 8))
    for _ in range(random.randint(1, 4)):
        leader = world.leader()
        world.spawn(world.life(leader, random.randint(5, 60)), random.choice((0, 0, 100, 600)))
    world.spawn(world.reader())
    world.spawn(world.truncator())
    world.spawn(world.sweeper())
    world.spawn(world.deleter())
    world.run()
    for leader in world.leaders:
        world.require(leader.has_ended, f"leader {leader.number} does not end")
    world.checks.names()
    world.checks.order(append for leader in world.leaders for append in leader.appends)
    return world


def stopped_by_the_deletion(world: LeaderWorld) -> int:
    """Return the number of leaders that stopped because the log was deleted."""
    stops = [leader.stopped for leader in world.leaders if leader.opened is not None]
    return sum(stop is not None and isinstance(stop.error, LogNotFoundError) for stop in stops)
