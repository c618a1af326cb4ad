"""Random schedules of leaders whose log is deleted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.protocol.leader.leader import LeaderLog
from tests.sim.handlers import replace
from tests.sim.leader.deleted import deleted_schedule, stopped_by_the_deletion
from tests.sim.leader.schedules import run_schedules
from tests.sim.log.checks import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.protocol.leader.messages import HeadChanged
    from tests.sim.leader.world import LeaderWorld

SCHEDULES = 200
SCHEDULES_TO_CATCH_MAX = 50

pytestmark = pytest.mark.usefixtures("small_heads")


def test_no_leader_goes_on_in_a_deleted_log(show: Callable[[object], None]) -> None:
    stopped = 0

    def count(world: LeaderWorld) -> None:
        nonlocal stopped
        stopped += stopped_by_the_deletion(world)

    counts = run_schedules(range(SCHEDULES), count, deleted_schedule)
    show(f"{counts}, {stopped} leaders told that the log was deleted")
    assert counts.acknowledged > SCHEDULES * 5
    assert stopped > SCHEDULES // 3


def test_a_schedule_catches_a_leader_that_does_not_look_at_its_head() -> None:
    def deaf(_leader: LeaderLog, _event: HeadChanged) -> list[object]:
        return []

    with ExitStack() as undo:
        replace(undo, LeaderLog, "_on_head_changed", deaf)
        with pytest.raises(Violation, match=r"goes on in a deleted log|never learned"):
            run_schedules(range(SCHEDULES_TO_CATCH_MAX), None, deleted_schedule)
