"""Random schedules of leaders whose log loses acknowledged records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.protocol.leader import list as leader_list
from tests.sim.leader.damaged import DamagedWorld, damaged_schedule
from tests.sim.leader.schedules import run_schedules
from tests.sim.log.checks import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = 100

pytestmark = pytest.mark.usefixtures("small_heads")


def test_nobody_leads_a_log_over_a_gap(show: Callable[[object], None]) -> None:
    lost = 0

    def count(world: DamagedWorld) -> None:
        nonlocal lost
        lost += world.lost is not None

    counts = run_schedules(range(SCHEDULES), count, damaged_schedule)  # type: ignore[arg-type]
    show(f"{counts}, {lost} logs lost records")
    assert lost > SCHEDULES // 5


def test_a_schedule_catches_a_list_that_is_not_checked_for_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        leader_list, "_checked_end", lambda head, items: (items or [head])[-1].end_offset
    )
    with pytest.raises(Violation, match="gap"):
        run_schedules(range(SCHEDULES), None, damaged_schedule)
