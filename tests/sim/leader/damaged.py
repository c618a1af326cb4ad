"""Schedules in which an operator closes a ledger short under its leader (LOGS.md#J6)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.model import LedgerState
from tests.sim.leader.world import LeaderWorld, drawn_properties, play_out

if TYPE_CHECKING:
    from tests.sim.leader.leader import SimLeader
    from tests.sim.leader.ledgers import SimLedger
    from tests.sim.log.world import Actor

LOOKS = 400


class DamagedWorld(LeaderWorld):
    """Leaders of a log that loses acknowledged records.

    Attributes:
        lost: The first lost offset, and the first offset of the next ledger; None while nothing is
            lost.
    """

    lost: tuple[int, int] | None = None

    def operator(self) -> Actor:
        """Wait until two ledgers are in use, then close the older below its acknowledged end."""
        for _ in range(LOOKS):
            yield self.sleep(self.random.randint(1, 6))
            listed = self.store.state.head.value.open_ledgers
            ledgers = [self.ledgers.by_id[each.ledger_id] for each in listed]
            if len(ledgers) > 1 and self._loses(*ledgers):
                return

    def _loses(self, older: SimLedger, newer: SimLedger) -> bool:
        is_left = older.state is LedgerState.OPEN and not older.is_broken and newer.quorum > 0
        if not is_left or older.confirmed < len(older.stored):
            return False
        older.is_fenced = older.is_sealed_by_other = True
        older.state = LedgerState.CLOSED
        older.last_entry_id = older.confirmed - 1 - self.random.randint(1, older.confirmed)
        kept = older.entries
        begins_at = self.store.state.head.value.end_offset
        self.lost = (kept[-1].end_offset if kept else begins_at), newer.stored[0].first_offset
        return True

    def check_loss(self, leader: SimLeader) -> None:
        """Check that the log has no leader, and that the error names the lost records."""
        self.require(leader.opened is None, f"leader {leader.number} leads over a gap: {self.lost}")
        error = leader.stopped.error if leader.stopped is not None else None
        is_loss = isinstance(error, DataLossError)
        self.require(is_loss, f"the log lost {self.lost}, and its leader says {error!r}")
        assert error is not None
        reported = error.fields["expected_offset"], error.fields["first_offset"]
        self.require(reported == self.lost, f"{self.lost} is lost, and {error!r} says {reported}")


def damaged_schedule(seed: int) -> DamagedWorld:
    """Run one schedule to its end, then let one more leader open the log undisturbed."""
    world = DamagedWorld(seed, drawn_properties(Random(seed * 31 + 7)) | {"rollBytes": "300"})
    world.ledgers.break_probability = world.random.choice((0, 0.01))
    play_out(world, _play)
    return world


def _play(world: DamagedWorld) -> None:
    random = world.random
    for _ in range(random.randint(1, 3)):
        world.spawn(world.life(world.leader(), random.randint(5, 40)), random.choice((0, 0, 300)))
    world.spawn(world.operator())
    world.spawn(world.sweeper())
    world.run()
    world.heal()
    last = world.leader()
    world.spawn(_open_undisturbed(world, last))
    world.run()
    if world.lost is None:
        world.require(last.opened is not None, f"nobody can lead the log: {last.stopped}")
    else:
        world.check_loss(last)


def _open_undisturbed(world: DamagedWorld, leader: SimLeader) -> Actor:
    for other in world.leaders[:-1]:
        other.die()
    leader.start()
    yield world.sleep(3_000)
    leader.die()
