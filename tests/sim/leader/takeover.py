"""The end of a schedule, without faults: one leader is fenced, and then another replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.leader.candidates import SESSION_TIMEOUT_MS

if TYPE_CHECKING:
    from tests.sim.leader.leader import SimLeader
    from tests.sim.leader.world import LeaderWorld
    from tests.sim.log.world import Actor

OPENED_MS_MAX = 3_000
GOES_ON_MS_MAX = 800
"""Maximum time for which a fence delays appends, if no other client has claimed the log."""
DEAD_MS_MAX = 3 * SESSION_TIMEOUT_MS
"""Time after which a dead claimant has lost its session, and its claim has been replaced."""


def lead_and_be_replaced(world: LeaderWorld, leader: SimLeader, opener: SimLeader) -> Actor:
    """Let `leader` lead through fences, and then let `opener` replace it.

    The clients of the earlier leaders are dead.
    """
    for other in world.leaders:
        if other not in (leader, opener) and not other.is_dead:
            other.die()
    yield from _open(world, leader)
    for _ in range(world.extra.randint(0, 2)):
        yield from _be_fenced(world, leader)
    if world.extra.random() < 0.5:
        yield from _outlive_a_claimant(world, leader)
    yield from _be_replaced(world, leader, opener)
    for _ in range(5):
        opener.append(3)
        yield world.sleep(30)
    opener.close()
    yield world.sleep(OPENED_MS_MAX)
    world.require(opener.is_closed, f"the last leader does not end: {opener.stopped}")


def _open(world: LeaderWorld, leader: SimLeader) -> Actor:
    leader.start()
    yield world.sleep(OPENED_MS_MAX)
    world.require(leader.opened is not None, f"nobody can lead the log: {leader.stopped}")


def _be_fenced(world: LeaderWorld, leader: SimLeader, delay_ms: int = 0) -> Actor:
    """Recover a ledger of an idle or busy leader. The leader must go on."""
    if world.extra.random() < 0.5:
        leader.append(2)
    world.recover_one()
    yield world.sleep(world.extra.randint(1, 60))
    for _ in range(4):
        leader.append(2)
        yield world.sleep(20)
    yield world.sleep(GOES_ON_MS_MAX + delay_ms)
    number = leader.number
    world.require(leader.is_free, f"a fence without a claim ends leader {number}: {leader.stopped}")
    waits = sum(append.acknowledged_ms is None for append in leader.appends)
    world.require(not waits, f"{waits} appends of leader {number} wait after a fence")


def _outlive_a_claimant(world: LeaderWorld, leader: SimLeader) -> Actor:
    """Let a client claim the log and die before it seals a ledger. The leader must go on."""
    dead = world.leader()
    dead.is_doomed, dead.doom_ms_max = True, 1
    dead.start()
    yield world.sleep(DEAD_MS_MAX)
    world.require(dead.is_dead, "the claimant did not die")
    yield from _be_fenced(world, leader, DEAD_MS_MAX)


def _be_replaced(world: LeaderWorld, leader: SimLeader, opener: SimLeader) -> Actor:
    """Open the log while its leader appends: at the end, there is one leader (LOGS.md#J14)."""
    opener.start()
    until = world.now + OPENED_MS_MAX
    while world.now < until and not leader.has_ended:
        leader.append(1)
        yield world.sleep(world.extra.randint(1, 40))
    yield world.sleep(OPENED_MS_MAX)
    world.require(
        leader.has_ended,
        f"leader {leader.number} goes on against leader {opener.number}: {opener.stopped}",
    )
    world.require(opener.opened is not None, f"nobody leads the log: {opener.stopped}")
