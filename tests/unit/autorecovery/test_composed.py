"""The parts of auto-recovery in one process: a defect of one ends none of the others."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from bookie_server.service import auto_recovery
from ledgerlog_spark.autorecovery import composed
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.testing.cluster import memory_metadata

pytestmark = pytest.mark.virtual_time


async def test_a_part_that_fails_is_reported_and_begins_again_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[tuple[str, Any]] = []
    begun: list[str] = []
    stores = memory_metadata()
    await stores.initialize()
    recovery = AutoRecovery("m:1", stores, lambda *event: events.append(event))

    def part(name: str, failures: int) -> Any:
        async def run(*_: Any) -> None:
            begun.append(name)
            if begun.count(name) <= failures:
                raise KeyError("a defect")
            await asyncio.Event().wait()

        return run

    monkeypatch.setattr(recovery.auditor, "run", part("auditor", 0))
    monkeypatch.setattr(recovery.worker, "run", part("worker", 3))
    monkeypatch.setattr(composed, "run_vacations", part("vacations", 1))
    running = asyncio.create_task(recovery.run())
    await asyncio.sleep(1.5)
    assert sorted(begun) == ["auditor", "vacations", "vacations", "worker", "worker"]
    await asyncio.sleep(60)
    assert begun.count("worker") == 4
    assert (begun.count("auditor"), begun.count("vacations")) == (1, 2)
    assert [event for event, _ in events].count("worker_crashed") == 3
    assert [event for event, _ in events].count("vacations_crashed") == 1
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stores.close()


async def test_a_part_that_ran_for_long_begins_again_after_the_first_pause() -> None:
    now_s = asyncio.get_running_loop().time
    begun: list[float] = []
    lasts = [0.0] * 5 + [composed.LONG_SECONDS]

    async def run() -> None:
        begun.append(now_s())
        if len(begun) > len(lasts):
            await asyncio.Event().wait()
        await asyncio.sleep(lasts[len(begun) - 1])
        raise KeyError("a defect")

    running = asyncio.create_task(composed._for_ever("part", run, lambda *_: None))
    await asyncio.sleep(composed.LONG_SECONDS + 100)
    pauses = [round(two - one) for one, two in pairwise(begun)]
    assert pauses == [1, 2, 4, 8, 16, composed.LONG_SECONDS + 1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("error", "level"), [(KeyError("a defect"), 40), (MetadataUnavailableError("away"), 30)]
)
def test_a_bookie_logs_an_error_of_auto_recovery_with_its_type(
    monkeypatch: pytest.MonkeyPatch, error: Exception, level: int
) -> None:
    lines: list[Any] = []

    class Logger:
        def log(self, *arguments: Any, **fields: Any) -> None:
            lines.append((*arguments, fields))

    monkeypatch.setattr(auto_recovery, "_logger", Logger())
    auto_recovery._write_line("worker_crashed", error)
    ((found, event, fields),) = lines
    assert (found, event, fields["what"]) == (level, "autorecovery_failed", "worker_crashed")
    assert fields["about"].startswith(type(error).__name__)
