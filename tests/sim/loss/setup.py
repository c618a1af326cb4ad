"""Helpers of the scripted schedules about losses.

By default, a ledger has E3/Qw3/Qa2 on b0, b1 and b2, which are unjournaled. `w` is the writer, and
`r` recovers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bookie_server.core.requests import StoredRead
from ledgerlog_spark.model import Code, Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.faults import JITTER
from tests.sim.loss.directory import Directory
from tests.sim.loss.options import loss_options
from tests.sim.loss.world import LossWorld
from tests.sim.options import LEDGER
from tests.sim.scripts import CALM, lose

LATER = 8
"""A ledger that is created after the bookies have started."""


def loss_world(
    quorum: Quorum = CALM.quorum, *, weak_part: float = 1.0, **options: Any
) -> LossWorld:
    """Return a cluster without random faults, with the writer of a new ledger on b0, b1, ..."""
    chosen = replace(CALM, quorum=quorum, **options)
    losses = loss_options(chosen, limit="any", weak_part=weak_part)
    world = LossWorld(1, losses, suppressed=frozenset({JITTER}))
    world.create_ledger(quorum, tuple(f"b{i}" for i in range(quorum.ensemble_size)))
    world.prefers["*"] = ("b3", "b4", "b5")
    for bookie in world.bookies.values():
        bookie.start()
    world.run_for(20)
    return world


def recover(world: LossWorld, name: str = "r", ledger_id: int = LEDGER) -> None:
    world.recoverer(name, attempts_max=1, ledger_id=ledger_id).feed(m.Start())


def cut_power(world: LossWorld, name: str, *, ledger_id: int = LEDGER, down_ms: int = 1) -> None:
    """Lose power before any record of the ledger was synced."""
    bookie = world.bookies[name]
    directory = bookie.directory
    assert directory.manifest is not None
    world.kill(name)
    directory.records = [one for one in directory.records if one.ledger_id != ledger_id]
    directory.dirty, directory.number = set(), None
    directory.manifest = replace(directory.manifest, owes_sync=True)
    bookie.note_loss("power")
    world.run_for(down_ms)
    world.restart(name)


def lose_unsynced(world: LossWorld, name: str) -> None:
    """Lose power, and all records that are not synced."""
    directory = world.bookies[name].directory
    kept = [one for place, one in enumerate(directory.records) if place not in directory.dirty]
    directory.records = kept
    world.kill(name, power=True)
    directory.dirty = set()
    world.restart(name)


def place_of(world: LossWorld, name: str, ledger_id: int) -> int:
    """Return the place of the only entry of a ledger in the directory of a bookie."""
    records = world.bookies[name].directory.records
    (place,) = [
        place
        for place, one in enumerate(records)
        if one.ledger_id == ledger_id and one.kind == "entry"
    ]
    return place


def wipe(world: LossWorld, name: str) -> None:
    world.replace_directory(name, Directory(), "wipe")


def serve(world: LossWorld, name: str) -> None:
    """Wait until a bookie serves, but has not repaired anything yet."""
    up = world.run_until(lambda: world.bookies[name].storage is not None, 1_000)
    require(up, "SCRIPT", f"{name} does not start")


def stay_broken(world: LossWorld, *names: str) -> None:
    """Let bookies repair nothing before the cluster is healed."""
    for name in names:
        lose(world, ("list", name, "zk"))
        for other in world.bookies:
            lose(world, ("fetch", name, other), ("peer_lac", name, other))


def ask(world: LossWorld, name: str, entry_id: int, ledger_id: int = LEDGER) -> Code:
    """Read an entry from one bookie. The checker judges the answer."""
    found: list[Code] = []
    request = StoredRead(ledger_id, entry_id)
    world.bookies[name].read(request, lambda code, _: found.append(code))
    answered = world.run_until(lambda: bool(found), 200)
    require(answered, "SCRIPT", f"{name} does not answer")
    return found[0]


def confirm(world: LossWorld, last: int, ledger_id: int = LEDGER) -> None:
    world.run_for(10)
    confirmed = world.checkers.of(ledger_id).last_confirmed
    require(confirmed == last, "SCRIPT", f"confirmed is {confirmed}")


def later_ledger(world: LossWorld) -> None:
    """Create a ledger after the bookies have started, and confirm its entry 0 on b0, b1 and b2."""
    world.create_ledger(CALM.quorum, ("b0", "b1", "b2"), ledger_id=LATER, name="v")
    world.add(name="v")
    confirm(world, 0, LATER)


Script = Callable[[], LossWorld]
