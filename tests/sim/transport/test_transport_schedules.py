"""Random schedules of the transport, byte by byte, and the mutations that they notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.transport.v2.connection import V2Connection
from ledgerlog_spark.transport.v2.link import V2Link
from tests.fixtures.autojump import run_in_virtual_time
from tests.sim.log.checks import Violation
from tests.sim.share import played
from tests.sim.transport.schedules import run_schedules
from tests.sim.transport.world import TransportWorld, transport_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(25)
SCHEDULES_TO_CATCH_MAX = 40


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_schedules(range(7_000, 7_000 + SCHEDULES))
    show(counts)


def test_a_violation_that_only_the_loop_hears_of_is_one() -> None:
    async def run() -> None:
        world = TransportWorld(1)
        world.on_loop_error(None, {"exception": world.violation("heard of"), "message": ""})
        world.raise_failure()

    with pytest.raises(Violation, match="heard of"):
        run_in_virtual_time(run())


def test_same_seed_gives_the_same_history() -> None:
    first, second = transport_schedule(9), transport_schedule(9)
    assert first.events == second.events
    assert first.counts == second.counts
    assert first.loop.time() == second.loop.time()


def late_answers_pass_for_others(patch: pytest.MonkeyPatch) -> None:
    """The answer to a request that timed out answers the next one with the same key."""

    def send_keyed(self: Any, pending: Any) -> None:
        self._by_key[pending.key] = pending
        self._write(pending.frame())

    patch.setattr(V2Connection, "is_blocked", lambda *_: False)
    patch.setattr(V2Connection, "_send_keyed", send_keyed)


def those_behind_a_late_answer_are_not_wanted(patch: pytest.MonkeyPatch) -> None:
    """If the callback of a time-out makes a new request, the requests behind it fail."""

    def is_wanted(self: Any) -> bool:
        held = (*self._by_id.values(), *self._by_key.values())
        return any(pending.is_wanted for pending in held)

    patch.setattr(V2Connection, "is_wanted", property(is_wanted))


def pauses_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Each request tries to connect to a bookie that is down."""

    def lengthen(self: Any) -> None:
        self._failures = 0

    patch.setattr(V2Link, "_lengthen_delay", lengthen)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    late_answers_pass_for_others: "two requests for",
    those_behind_a_late_answer_are_not_wanted: "UNAVAILABLE after .* for nothing",
    pauses_are_forgotten: "too early",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run_schedules, SCHEDULES_TO_CATCH_MAX)
