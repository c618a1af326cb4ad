"""Threads that stay on a CPU, and those that they start."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bookie_server import cpus
from bookie_server.cpus import LONE_ADDS_MIN, LoneStay, leave_cpu, stay_on, usable_cpus
from bookie_server.storage.os_filesystem import OsFileSystem

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept on a CPU"
)


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpus, "_before", set())
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one CPU is all there is")
    yield before
    os.sched_setaffinity(0, before)


@pytest.fixture
async def reader_affinities(tmp_path: Path):
    """What a cold read's thread may use, after a read of a directory opened beforehand."""
    files = OsFileSystem(tmp_path)
    await files.lock()
    file = await files.open("a", create=True)
    await file.write_synced(0, [b"data"])

    async def look() -> list[set[int]]:
        before = set(threading.enumerate())
        assert await file.read(0, 4) == b"data"
        made = set(threading.enumerate()) - before
        return [os.sched_getaffinity(thread.native_id or 0) for thread in made]

    yield look
    await file.close()
    await files.unlock()


async def test_threads_for_reads_run_anywhere_when_the_loop_stays_on_a_cpu(
    everywhere, reader_affinities
) -> None:
    stay_on(max(everywhere))
    assert usable_cpus() == (max(everywhere),)
    assert await reader_affinities() == [everywhere]
    assert os.sched_getaffinity(0) == {max(everywhere)}


async def test_an_administrators_choice_is_left_alone_when_nobody_was_told_to_stay(
    everywhere, reader_affinities
) -> None:
    os.sched_setaffinity(0, {min(everywhere)})
    assert await reader_affinities() == [{min(everywhere)}]


async def test_reads_work_where_a_thread_may_not_choose(
    everywhere, reader_affinities, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    stay_on(min(everywhere))
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert await reader_affinities() == [{min(everywhere)}]
    leave_cpu()
    with pytest.raises(PermissionError):
        stay_on(min(everywhere))
    monkeypatch.undo()


def test_a_second_choice_does_not_forget_where_threads_could_run_first(everywhere) -> None:
    for cpu in sorted(everywhere)[:2]:
        stay_on(cpu)
        os.sched_setaffinity(0, everywhere)
    stay_on(min(everywhere))
    leave_cpu()
    assert os.sched_getaffinity(0) == everywhere


def test_a_loop_stays_while_adds_come_alone_and_leaves_with_anything_else(everywhere) -> None:
    refusals: list[OSError] = []
    stay = LoneStay(max(everywhere), refusals.append)
    for _ in range(2):
        for _ in range(LONE_ADDS_MIN - 1):
            stay.lone()
        assert os.sched_getaffinity(0) == everywhere
        stay.busy()
        for _ in range(LONE_ADDS_MIN + 5):
            stay.lone()
        assert os.sched_getaffinity(0) == {max(everywhere)}
        stay.busy()
        assert os.sched_getaffinity(0) == everywhere
    assert refusals == []


def test_a_loop_without_a_cpu_never_stays(everywhere, monkeypatch) -> None:
    monkeypatch.setattr(cpus, "stay_on", lambda _cpu: pytest.fail("nobody said where"))
    stay = LoneStay(None, lambda error: pytest.fail(str(error)))
    for _ in range(LONE_ADDS_MIN + 1):
        stay.lone()
    stay.busy()
    assert os.sched_getaffinity(0) == everywhere


def test_a_loop_that_may_not_stay_says_so_once_and_goes_on(everywhere, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    refusals: list[OSError] = []
    stay = LoneStay(min(everywhere), refusals.append)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    for _ in range(2):
        for _ in range(LONE_ADDS_MIN):
            stay.lone()
        stay.busy()
    monkeypatch.undo()
    assert [str(error) for error in refusals] == ["not here"]
