"""Named mistakes about vacations. Each replaces a function of the machine, or of its host.

See `tests.sim.mutations`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ledgerlog_spark.protocol.autorecovery.vacate import messages as m
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import Vacating, _Walk
from tests.sim.handlers import replace
from tests.sim.mutations import Mutation
from tests.sim.vacate.host import AuditorHost


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace(undo, owner, attribute, replacement)
        yield


def _mark_in_apaches_queue(self: AuditorHost, ledger_ids: tuple[int, ...]) -> None:
    store = self._world.store
    store.change(marks=store.now.marks | set(ledger_ids))


def _may_end_at_once(walk: _Walk) -> bool:
    return walk.ledgers == 0


def _walk_of_a_replica(self: Vacating) -> list[m.Effect]:
    (walk,) = _begin_walk(self)
    assert isinstance(walk, m.WalkLedgers)
    return [m.WalkLedgers(walk.request, -1, sync_first=False)]


def _keep_quiet(self: Vacating) -> None:
    self._walk = None


def _retire_at_any_version(version: object, effect: m.WriteVacation | m.Retire) -> bool:
    return version == effect.version or effect.departure.is_over


def _retire_whoever_returned(self: Vacating) -> list[m.Effect]:
    walk, departure = self._walk, self._departure
    if walk is not None and departure is not None:
        walk.returns = departure.returns
    return _after_look(self)


def _without_unreadable(self: Vacating, event: m.LedgersWalked) -> list[m.Effect]:
    return _on_walked(self, dataclasses.replace(event, unreadable=()))


_on_walked: Any = Vacating._on_walked
_begin_walk: Any = Vacating._begin_walk
_after_look: Any = Vacating._after_look

MUTATIONS: dict[str, Mutation] = {
    "drain_in_ur_queue": Mutation(
        "moves are marks in Apache's queue, whose workers find nothing missing",
        ((AuditorHost, "queue_moves", _mark_in_apaches_queue),),
    ),
    "vacated_on_stale_walk": Mutation(
        "a walk ends the vacation although it began before the lists of writers were refreshed",
        ((Vacating, "_may_end", staticmethod(_may_end_at_once)),),
    ),
    "walk_is_not_synced": Mutation(
        "a walk reads a replica that is behind", ((Vacating, "_begin_walk", _walk_of_a_replica),)
    ),
    "unreadable_ledgers_are_skipped": Mutation(
        "a walk skips ledgers whose metadata cannot be read, although they may name the bookie",
        ((Vacating, "_on_walked", _without_unreadable),),
    ),
    "quiet_survives": Mutation(
        "the quiet time does not begin again after the bookie was writable",
        ((Vacating, "_forget_quiet", _keep_quiet),),
    ),
    "cookie_deleted_under_a_returner": Mutation(
        "the cookie is deleted although the bookie returned after the walk",
        (
            (AuditorHost, "is_same", staticmethod(_retire_at_any_version)),
            (Vacating, "_after_look", _retire_whoever_returned),
        ),
    ),
    "return_before_the_load_is_ignored": Mutation(
        "a walk counts although the bookie returned after it began",
        ((Vacating, "_after_look", _retire_whoever_returned),),
    ),
}
