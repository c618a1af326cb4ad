"""The memory and the output of the tools are bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.storage.device.filesystem import OsFile
from bookie_server.tools.check import Report
from bookie_server.tools.check_index import WRONG_MAX, Comparison
from bookie_server.tools.directory import OPEN_FILES_MAX
from bookie_server.tools.entries import (
    PORTION_SIZE_BYTES,
    RANGES_REPORTED_MAX,
    Ranges,
    describe_ranges,
)
from bookie_server.tools.excerpts import Excerpt, excerpt_of
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.fixtures.resting import written
from tests.unit.bookie_tools.calls import checked, dumped

CHUNK = 1 << 16


def test_ranges_keep_the_first_ones_and_count_all() -> None:
    ranges = Ranges()
    for number in range(3 * RANGES_REPORTED_MAX):
        ranges.add(10 * number, 10 * number + 1)
    assert len(ranges.first_ones) == RANGES_REPORTED_MAX
    assert ranges.count == 6 * RANGES_REPORTED_MAX
    assert describe_ranges(ranges).startswith("0-1, 10-11, ")
    assert describe_ranges(ranges).endswith(", ...")


def test_ranges_side_by_side_become_one() -> None:
    ranges = Ranges()
    for each in (3, 4, 5, 9):
        ranges.add(each, each)
    assert describe_ranges(ranges) == "3-5, 9"


def test_defects_and_notes_are_kept_up_to_their_limits() -> None:
    comparison = Comparison()
    for number in range(WRONG_MAX + 5):
        comparison.add(str(number))
    assert len(comparison.wrong) == WRONG_MAX
    report = Report(3)
    for number in range(9):
        report.find("slot", number, "damaged")
        report.note("torn")
    assert (report.wrong, len(report.findings), len(report.notes)) == (9, 3, 3)


def test_more_files_than_descriptors_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1)
    machine.start()
    number = 0
    while len(machine.slots()) < OPEN_FILES_MAX + 5:
        assert machine.add(1, (number,), b"a" * 7_000) is Code.OK
        number += 1
    machine.scheduler.run_for(500)
    machine.stop()
    opened: set[int] = set()
    most = 0
    enter, leave = OsFile.__init__, OsFile.close

    def note_open(self: OsFile, *arguments: object) -> None:
        nonlocal most
        enter(self, *arguments)  # type: ignore[arg-type]
        opened.add(id(self))
        most = max(most, len(opened))

    async def note_close(self: OsFile) -> None:
        await leave(self)
        opened.discard(id(self))

    monkeypatch.setattr(OsFile, "__init__", note_open)
    monkeypatch.setattr(OsFile, "close", note_close)
    assert checked(written(machine, tmp_path / "bookie")).wrong == 0
    assert 1 < most <= OPEN_FILES_MAX


def test_a_large_record_is_dumped_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 100_000
    machine = Machine(2, settings=replace(SMALL, file_size_bytes=1 << 23, group_bytes_max=1 << 22,
                                          in_flight_bytes_max=1 << 23))  # fmt: skip
    machine.start()
    assert machine.add(1, range(40), b"a" * size) is Code.OK
    machine.scheduler.run_for(500)
    machine.stop()
    sizes: list[int] = []
    read_now = OsFile.read_now

    def noted(self: OsFile, offset: int, length: int) -> bytes | None:
        sizes.append(length)
        return read_now(self, offset, length)

    monkeypatch.setattr(OsFile, "read_now", noted)
    assert len(dumped(written(machine, tmp_path / "bookie"), 1)[0]) == 40
    assert size < max(sizes) <= PORTION_SIZE_BYTES + 2 * CHUNK


def test_an_excerpt_names_the_first_row_that_it_does_not_have() -> None:
    rows = [(key, {"key": key}) for key in (2, 3, 7)]
    assert excerpt_of(rows, 0, 2) == Excerpt([{"key": 2}, {"key": 3}], 7)
    assert excerpt_of(rows, 3, 2) == Excerpt([{"key": 3}, {"key": 7}])
    assert excerpt_of(rows, 0, 3).following is None
    assert excerpt_of(rows, 8, 3) == Excerpt([])
