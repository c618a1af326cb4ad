"""The upkeep process: its output, its end, and its behaviour without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.lines import WAITING_BYTES_MAX
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.upkeep import service as service_module
from ledgerlog_spark.upkeep.service import (
    DONE,
    ERROR_CHARACTERS_MAX,
    FAILED,
    HELD,
    UpkeepService,
    standard_output,
)
from ledgerlog_spark.upkeep.upkeep import leased
from tests.unit.upkeep.upkeep_world import RowsWorld, append

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DAY_MS = 86_400_000


class Lines:
    """The lines of a service."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    def __call__(self, line: str) -> None:
        assert "\n" not in line
        self.written.append(json.loads(line))
        self._changed.set()

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.written]

    async def until(self, event: str, count: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.events.count(event) < count:
                self._changed.clear()
                await self._changed.wait()


class Services:
    """Creates services of a world. The first `failures` attempts to connect fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.away = 0

    def __call__(self, world: RowsWorld, lines: Lines) -> UpkeepService:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            yield world.opened()[0]

        async def open_client(_: str | None) -> Any:
            if self.away:
                self.away -= 1
                raise MetadataUnavailableError("no answer " * 100)
            return opened()

        self._patch.setattr(service_module, "open_client", open_client)
        return UpkeepService(None, lines)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    return Services(monkeypatch)


async def old_rows(world: RowsWorld, *counts: int) -> None:
    """Write rows that retention deletes."""
    _, logs = world.opened()
    log = await logs.open_or_create("flights", properties={"retentionMs": "1000"})
    await append(log, *counts)
    world.skip(DAY_MS)


async def ended_by(number: signal.Signals, running: asyncio.Future[int]) -> int:
    os.kill(os.getpid(), number)
    async with asyncio.timeout(20):
        return await running


async def test_one_pass_writes_what_it_did_and_an_idle_one_that_it_changed_nothing(
    world: RowsWorld, services: Services
) -> None:
    await old_rows(world, 1, 1)
    lines = Lines()
    assert await services(world, lines).run_once() == DONE
    assert lines.events == ["log", "pass"]
    done, whole = lines.written
    assert (done["log"], done["ledgers_unlisted"], done["errors"]) == ("flights", 2, [])
    assert (whole["logs"], whole["logs_changed"]) == (1, 1)
    lines.written.clear()
    assert await services(world, lines).run_once() == DONE
    assert [line["logs_changed"] for line in lines.written] == [0]


async def test_one_pass_has_an_exit_code_of_its_own_when_another_process_works(
    world: RowsWorld, services: Services
) -> None:
    lines = Lines()
    async with leased(world.opened()[0]) as is_held:
        assert is_held
        assert await services(world, lines).run_once() == HELD
    assert lines.events == ["held"]
    assert lines.written[0]["by"]["pid"] == str(os.getpid())


async def test_log_that_cannot_be_kept_up_is_named_and_fails_the_pass(
    world: RowsWorld, services: Services
) -> None:
    _, logs = world.opened()
    log = await logs.create("flights")
    _, stores = world.client_and_stores()
    await stores.tree.set(f"/ledgers-logs/ids/{log.log_id}/head", b"no head", None)
    lines = Lines()
    assert await services(world, lines).run_once() == FAILED
    assert lines.events == ["log", "pass"]
    assert lines.written[0]["log"] == log.log_id
    assert len(lines.written[0]["errors"]) == 1


async def test_service_works_at_once_and_again_until_a_signal(
    world: RowsWorld, services: Services
) -> None:
    await old_rows(world, 1)
    lines = Lines()
    service = services(world, lines)
    running = asyncio.ensure_future(service.run(interval_seconds=0.01))
    await lines.until("log")
    await old_rows(world, 1)
    await lines.until("log", 2)
    assert await ended_by(signal.SIGTERM, running) == DONE
    assert (lines.events[0], lines.events[-1]) == ("started", "ended")
    assert "failed" not in lines.events


async def test_service_writes_once_that_another_process_works_and_takes_over_after_it(
    world: RowsWorld, services: Services
) -> None:
    await old_rows(world, 1)
    lines = Lines()
    service = services(world, lines)
    async with leased(world.opened()[0]):
        running = asyncio.ensure_future(service.run(interval_seconds=0.001))
        await lines.until("held")
        for _ in range(200):
            await asyncio.sleep(0)
    await lines.until("log")
    assert await ended_by(signal.SIGINT, running) == DONE
    assert lines.events.count("held") == 1


async def test_service_tries_again_while_the_cluster_is_away(
    world: RowsWorld, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "RETRY", RetryPolicy(1, 4))
    await old_rows(world, 1)
    lines = Lines()
    services.away = 4
    service = services(world, lines)
    running = asyncio.ensure_future(service.run(interval_seconds=0.01))
    await lines.until("log")
    away = [line for line in lines.written if line["event"] == "unreachable"]
    assert [line["retry_seconds"] for line in away] == [0.001, 0.002, 0.004, 0.004]
    assert all(len(line["error"]) == ERROR_CHARACTERS_MAX for line in away)
    assert await ended_by(signal.SIGTERM, running) == DONE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_ends_a_service_that_still_waits_for_the_cluster(
    world: RowsWorld, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting, is_cancelled = asyncio.Event(), False

    async def open_client(_: str | None) -> Any:
        nonlocal is_cancelled
        is_waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled = True
            raise

    monkeypatch.setattr(service_module, "open_client", open_client)
    lines = Lines()
    running = asyncio.ensure_future(UpkeepService(None, lines).run(interval_seconds=1))
    async with asyncio.timeout(20):
        await is_waiting.wait()
    assert await ended_by(number, running) == DONE
    assert lines.events == ["started", "ended"]
    assert is_cancelled


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The read end of this process's standard output."""
    reading, writing = os.pipe()
    monkeypatch.setattr(service_module, "STANDARD_OUTPUT", writing)
    yield reading
    # The writing thread is a daemon and stays. It must not use the number of another file.
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), reading)
        os.dup2(nothing.fileno(), writing)


def test_standard_output_that_nobody_reads_holds_up_nobody(output: int) -> None:
    line = "x" * 1_000
    with standard_output(drain_seconds=0) as write_line:
        for _ in range(2 * WAITING_BYTES_MAX // len(line)):
            write_line(line)
    seen = b""
    while b"lines_dropped" not in seen:
        seen += os.read(output, 1 << 20)
        write_line(line)  # the dropped lines are reported with the next written line
    report = next(each for each in seen.splitlines() if b"lines_dropped" in each)
    assert json.loads(report)["count"] > 0


def test_a_service_ends_that_writes_to_a_pipe_which_was_closed(output: int) -> None:
    with standard_output() as write_line:
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), output)

        def write_on() -> None:
            while True:
                write_line("x")

        with pytest.raises(BrokenPipeError):
            write_on()


def test_what_a_pass_wrote_is_written_when_the_process_ends(output: int) -> None:
    with standard_output(drain_seconds=None) as write_line:
        for number in range(10):
            write_line(str(number))
    assert os.read(output, 1 << 16).split() == [b"%d" % number for number in range(10)]
