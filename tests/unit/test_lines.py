"""Writing a log line never blocks, and dropped lines are counted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.lines import LINE_BYTES_MAX, WAITING_BYTES_MAX, LogLines

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 40


def dropped(count: int) -> str:
    return json.dumps({"event": "log_lines_dropped", "count": count})


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)
    yield reading, writing
    # The daemon thread of the lines stays, so the number of its file must not be reused.
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), reading)
        os.dup2(nothing.fileno(), writing)


def _read_until(reading: int, end: bytes) -> list[str]:
    data = b""
    while not data.endswith(end):
        piece = os.read(reading, 1 << 16)
        assert piece
        data += piece
    return data.decode().splitlines()


def test_full_pipe_holds_up_nobody_and_each_line_is_written_or_counted_as_dropped(
    pipe: tuple[int, int],
) -> None:
    reading, writing = pipe
    lines = LogLines(writing, dropped)
    written = 0
    while not lines.dropped:
        lines.write(f"line {written}\n" + " " * 1_000 + "\n")
        written += 1
    assert WAITING_BYTES_MAX // 2_000 < written < WAITING_BYTES_MAX // 1_000 + 10
    # The thread fills the pipe at any time, so some of these lines may find room.
    for number in range(written, written + 99):
        lines.write(f"line {number}\n" + " " * 1_000 + "\n")
    assert lines.dropped > 99 // 4
    assert not lines.drain(0)

    # The last line is short, so it fits into the room that the longer ones leave.
    lines.write("end\n")
    read = [line for line in _read_until(reading, b"end\n") if line.strip()]
    kept = [int(line.removeprefix("line ")) for line in read if line.startswith("line ")]
    assert kept == sorted(set(kept))
    assert kept[: written - 1] == list(range(written - 1))
    reports = [json.loads(line)["count"] for line in read if "log_lines_dropped" in line]
    assert reports
    assert len(kept) + sum(reports) == written + 99
    assert sum(reports) == lines.dropped
    assert lines.drain(PATIENCE_SECONDS)


def test_pipe_that_another_process_made_non_blocking_loses_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    lines = LogLines(writing, dropped)
    for number in range(500):
        lines.write(f"{number} " + "x" * 100 + "\n")
    lines.write("end\n")
    read = _read_until(reading, b"end\n")
    assert [line.split()[0] for line in read] == [*map(str, range(500)), "end"]
    assert lines.dropped == 0


def test_lines_that_cannot_be_written_are_dropped_and_the_next_one_reports_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []
    failure: int | None = None

    def write(_descriptor: int, line: memoryview) -> int:
        if failure is not None:
            raise OSError(failure, "not now")
        written.append(bytes(line))
        return len(line)

    monkeypatch.setattr(os, "write", write)
    lines = LogLines(2, dropped)
    for failure in (errno.EPIPE, errno.ENOSPC, None, None):
        lines.write(f"{failure}\n")
        assert lines.drain(PATIENCE_SECONDS)
    assert lines.dropped == 2
    assert lines.has_no_reader
    report, *rest = written
    assert json.loads(report)["count"] == 2
    assert rest == [b"None\n", b"None\n"]


def test_line_that_is_too_long_is_cut(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = LogLines(writing, dropped)
    lines.write("x" * (WAITING_BYTES_MAX + 1) + "\n")
    lines.write("end\n")
    read = _read_until(reading, b"end\n")
    assert [len(line) + 1 for line in read] == [LINE_BYTES_MAX, 4]
    assert lines.dropped == 0
