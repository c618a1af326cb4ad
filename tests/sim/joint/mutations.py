"""Named mistakes of a joint world: those of workers and of auditors, and two of its own.

See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.sim.auditor.mutations import MUTATIONS as OF_AUDITORS
from tests.sim.handlers import replace
from tests.sim.healing.mutations import MUTATIONS as OF_WORKERS
from tests.sim.healing.world import HealingBookie
from tests.sim.mutations import Mutation
from tests.sim.records import RecordsFromStore


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace(undo, owner, attribute, replacement)
        yield


_empty = HealingBookie.empty


def _begin_without_doubt(self: HealingBookie, *, is_in_doubt: bool) -> None:
    """The bookie begins as a new one, and denies what it lost."""
    _empty(self, is_in_doubt=False)
    self.is_in_limbo = is_in_doubt


async def _release_nothing(_self: Any) -> None:
    """Forget the locks that a failed call may have left."""


MUTATIONS: dict[str, Mutation] = {
    **OF_WORKERS,
    **OF_AUDITORS,
    "limbo_denies": Mutation("LIMBO", ((HealingBookie, "empty", _begin_without_doubt),)),
    "left_lock_stays": Mutation("ENDED", ((RecordsFromStore, "release_left", _release_nothing),)),
}
