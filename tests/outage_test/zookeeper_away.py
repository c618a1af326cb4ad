"""ZooKeeper dies and comes back, and then all sessions expire."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fixtures.bookie_process import BookieProcess
    from tests.outage_test.world import World

BLOCKED_SECONDS = 25.0
"""Longer than the longest session (10 s) and than the granularity of ZooKeeper's expiry (2 s)."""
BACK_SECONDS_MAX = 60.0
WRITING = ("appends", "leaders")
"""Calls that need only bookies, so an outage of ZooKeeper must not leave their outcome open."""
MARKS_MAX = 0
"""No bookie was lost, so an auditor that marks anything was deceived by the outage."""


def play(world: World, away_seconds: float, settled_seconds: float) -> dict[str, float]:
    """Let ZooKeeper be away twice, and return the longest gaps after it was back."""
    names = list(world.stage.bookies)
    before = world.observer.owners(names)
    assert set(before) == set(names)
    world.gaps.take()

    world.stage.zookeeper.kill()
    try:
        world.run_for(away_seconds)
    finally:
        world.stage.zookeeper.start()
    away = world.gaps.take()
    world.note(f"ZooKeeper is away for {away_seconds:g} s: {_gaps(away)}")
    expect_back(world, names, {})
    report(world, away_seconds)

    before = world.observer.owners(names)
    world.observer.block(is_blocked=True)
    world.run_for(BLOCKED_SECONDS)
    if left := set(world.observer.owners(names)):
        world.fail(f"the sessions of {left} have not expired after {BLOCKED_SECONDS:g} s")
    world.observer.block(is_blocked=False)
    returned = time.monotonic()
    expect_back(world, names, before)
    world.run_for(settled_seconds)
    longest = report(world, BLOCKED_SECONDS)
    for name, count in world.load.findings.errors.items():
        if name.startswith(WRITING) and name.endswith("unknown"):
            world.fail(f"{count} calls failed without a definite error ({name})")
    expect_one_auditor(world)
    if len(world.observer.marked) > MARKS_MAX:
        world.fail(f"{len(world.observer.marked)} marks, although no bookie was lost")
    world.wait_until_healed(returned)
    return longest


def expect_back(world: World, names: list[str], before: Mapping[str, int]) -> None:
    """Wait until all bookies are registered by new sessions, and the load goes on."""

    def registered() -> bool:
        now = world.observer.owners(names)
        return set(now) == set(names) and not set(now.values()) & set(before.values())

    until(registered, seconds=BACK_SECONDS_MAX, what="the registration of all bookies")
    seconds = world.expect_progress(BACK_SECONDS_MAX)
    world.note(f"all bookies are registered, the load goes on after {seconds:.1f} s")


def report(world: World, away_seconds: float) -> dict[str, float]:
    """Print the longest gaps since the last report, and note those that are too long."""
    longest = world.gaps.take()
    for name, seconds in longest.items():
        if seconds > away_seconds + BACK_SECONDS_MAX:
            world.fail(f"{name}: nothing for {seconds:.1f} s")
    errors = world.load.findings.errors
    failed = ", ".join(f"{count} {name}" for name, count in sorted(errors.items()))
    world.note(f"the longest gaps: {_gaps(longest)}; failed: {failed or 'none'}")
    return longest


def expect_one_auditor(world: World) -> None:
    """Check the votes of the election, and how many bookies believe that they are elected."""
    voters = world.observer.voters()
    registered = set(world.observer.owners(world.stage.bookies).values())
    if len(voters) != len(world.stage.bookies) or set(voters) != registered:
        world.fail(f"the voters are the sessions {voters}, the bookies {registered}")
    auditing = [name for name, one in world.stage.bookies.items() if is_auditing(one)]
    if len(auditing) != 1:
        world.fail(f"{auditing} audit, not one bookie")
    world.note(f"{', '.join(auditing)} audits; {len(world.observer.marked)} marks were seen")


def is_auditing(bookie: BookieProcess) -> bool:
    """Whether the bookie has begun to audit more often than it has stepped down."""
    counts: Counter[str] = Counter()
    for line in bookie.log().splitlines():
        if '"autorecovery"' in line:
            counts[json.loads(line).get("what", "")] += 1
    return counts["elected"] > counts["stepped_down"]


def _gaps(longest: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in longest.items())
