"""Random schedules of the shipped client, and the mutations that they notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.v2.connection import V2Connection
from ledgerlog_spark.transport.v2.link import V2Link
from tests.fixtures.autojump import run_in_virtual_time
from tests.sim.handles.schedules import run_schedules
from tests.sim.handles.world import HandleWorld, handle_schedule
from tests.sim.log.checks import Violation
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(30)
SCHEDULES_TO_CATCH_MAX = 60


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_schedules(range(7_000, 7_000 + SCHEDULES))
    show(counts)


def test_a_violation_that_only_the_loop_hears_of_is_one() -> None:
    async def run() -> None:
        world = HandleWorld(1)
        world.on_loop_error(None, {"exception": world.violation("heard of"), "message": ""})
        world.raise_failure()

    with pytest.raises(Violation, match="heard of"):
        run_in_virtual_time(run())


def test_same_seed_gives_the_same_history() -> None:
    first, second = handle_schedule(9), handle_schedule(9)
    assert first.events == second.events
    assert first.counts == second.counts
    assert first.loop.time() == second.loop.time()


def blocked_requests_stay_behind(patch: pytest.MonkeyPatch) -> None:
    """After a request without an answer, this entry can never be read from that bookie again."""
    patch.setattr(V2Connection, "is_blocked", lambda *_: False)


def retired_connections_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(V2Link, "_close_retired", lambda _: None)


def deadlines_end_with_the_first(patch: pytest.MonkeyPatch) -> None:
    """After a request has expired, the requests behind it never expire."""
    fire = Deadlines._fire

    def once(self: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Deadlines, "_start_timer", lambda *_: None)
            fire(self)

    patch.setattr(Deadlines, "_fire", once)


def close_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A close does not wait for the appends before it."""

    async def nothing(_: Any) -> None:
        return

    patch.setattr(WriteHandle, "flush", nothing)


def announcements_never_end(patch: pytest.MonkeyPatch) -> None:
    """An idle writer never stops writing its LAC to a bookie without a control service."""
    patch.setattr("ledgerlog_spark.client.handles.lac_announcer.ATTEMPTS_MAX", 1 << 30)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    blocked_requests_stay_behind: "although nothing is wrong|these never end",
    retired_connections_are_kept: "connections",
    deadlines_end_with_the_first: "never end|does not end|after its deadline",
    close_does_not_wait: "a close failed|outlive a close|does not end|for nothing",
    announcements_never_end: "times",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run_schedules, SCHEDULES_TO_CATCH_MAX)
