"""The planner (ledgerlog_spark.datasource.scan.plan) and its golden cases."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.plan import (
    TASK_BYTES_MIN,
    LogScan,
    ScanPlan,
    plan,
)
from ledgerlog_spark.errors import ConfigurationError, DataLossError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, LogSnapshot, VersionInterval
from tests.unit.datasource.plan_cases import case_paths, planned

if TYPE_CHECKING:
    from pathlib import Path

REWRITE = "python -m tests.unit.datasource.plan_cases --rewrite"


def test_there_are_golden_cases() -> None:
    assert len(case_paths()) >= 20


@pytest.mark.parametrize("path", case_paths(), ids=lambda path: path.stem)
def test_the_plan_is_the_golden_one(path: Path) -> None:
    case = json.loads(path.read_text())
    assert json.loads(json.dumps(planned(case))) == case["plan"], f"if it should change: {REWRITE}"


def scan_of(items: list[Item], *, start: int = 0, end: int | None = None) -> LogScan:
    behind = items[-1].end_offset if items else 0
    interval = VersionInterval(1, start, behind if end is None else end, 0, "0" * 32, 0)
    snapshot = LogSnapshot("id", "flights", interval, tuple(items), {0: b""})
    return LogScan(snapshot)


ITEM = Item(7, 1, 5, 5, 100, 1000, 0, 0)


def test_offsets_beyond_the_end_are_an_error_that_names_the_option_and_the_end() -> None:
    said = "is 101, but version 1 of log 'flights' ends at offset 100"
    with pytest.raises(ConfigurationError, match=f'"endingOffsets" {said}'):
        plan([scan_of([ITEM])], SourceOptions(ending_offsets={"flights": 101}))
    with pytest.raises(ConfigurationError, match=f'"startingOffsets" {said}'):
        plan([scan_of([ITEM])], SourceOptions(starting_offsets={"flights": 101}))


def test_offsets_beyond_the_end_of_a_leader_log_are_an_error_that_names_no_version() -> None:
    scan = scan_of([ITEM])
    led = replace(scan, snapshot=replace(scan.snapshot, kind=LogKind.LEADER))
    with pytest.raises(ConfigurationError, match="but log 'flights' ends at offset 100"):
        plan([led], SourceOptions(starting_offsets={"flights": 101}))


def test_offsets_for_another_log_are_an_error_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match="offsets are given for fligths"):
        plan([scan_of([ITEM])], SourceOptions(starting_offsets={"fligths": 1}))


def test_rows_before_the_start_are_data_loss_unless_told_otherwise() -> None:
    scan = scan_of([ITEM], start=50)
    with pytest.raises(DataLossError, match=r"version 1 of .* begins at 50.*failOnDataLoss"):
        plan([scan], SourceOptions(starting_offsets={"*": 20}))
    kept = plan([scan], SourceOptions(starting_offsets={"*": 20}, fail_on_data_loss=False))
    assert kept.partitions[0].ranges[0].start_offset == 50


def test_an_end_before_the_start_is_an_error_and_one_at_the_start_reads_nothing() -> None:
    options = SourceOptions(starting_offsets={"*": 60}, ending_offsets={"*": 40})
    said = "log 'flights' would begin at offset 60 and end before it, at offset 40"
    with pytest.raises(ConfigurationError, match=said):
        plan([scan_of([ITEM])], options)
    empty = replace(options, ending_offsets={"*": 60})
    assert plan([scan_of([ITEM])], empty).partitions == ()


def test_a_merged_range_has_the_times_of_its_commits() -> None:
    history = [
        VersionInterval(version, 0, end, version * 100, "0" * 32, 0)
        for version, end in ((3, 10), (4, 40), (5, 40), (6, 100))
    ]
    scan = replace(scan_of([ITEM]), history=history)

    def times(start: int, end: int) -> tuple[tuple[int, int | None], ...]:
        options = SourceOptions(starting_offsets={"*": start}, ending_offsets={"*": end})
        return plan([scan], options).partitions[0].ranges[0].commit_times

    assert times(0, 100) == ((10, None), (40, 400), (100, 600))
    assert times(10, 40) == ((40, 400),)
    assert times(39, 41) == ((40, 400), (41, 600))
    later = replace(scan, history=history[:2])
    assert plan([later], SourceOptions()).partitions[0].ranges[0].commit_times == (
        (10, None),
        (40, 400),
        (100, None),
    )


def test_a_scan_too_small_for_two_tasks_is_one_however_many_run_at_once() -> None:
    small = replace(ITEM, size_bytes=TASK_BYTES_MIN)
    assert len(plan([scan_of([small])], SourceOptions(), parallelism=8).partitions) == 1
    larger = replace(ITEM, size_bytes=4 * TASK_BYTES_MIN)
    assert len(plan([scan_of([larger])], SourceOptions(), parallelism=8).partitions) == 4


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    listed: list[Item] = []
    offset = 0
    for ledger_id in range(draw(st.integers(0, 12))):
        batches = draw(st.integers(1, 30))
        rows = draw(st.integers(batches, 500))
        has_index = draw(st.booleans())
        last = batches + has_index
        listed.append(
            Item(
                ledger_id,
                1,
                last,
                last if has_index else NO_ENTRY,
                rows,
                draw(st.integers(0, 10_000_000)),
                offset,
                0,
            )
        )
        offset += rows
    return listed


def entries(planned_scan: ScanPlan) -> list[tuple[int, int]]:
    return [
        (scanned.ledger_id, entry)
        for partition in planned_scan.partitions
        for scanned in partition.ranges
        for entry in range(scanned.first_entry_id, scanned.last_entry_id + 1)
    ]


@settings(deadline=None)
@given(
    listed=items(),
    size_bytes=st.integers(1, 20_000_000),
    least=st.none() | st.integers(1, 40),
    rows=st.none() | st.integers(1, 1000),
    parallelism=st.integers(1, 40),
)
def test_every_entry_goes_to_one_task_in_the_order_of_the_rows(
    listed: list[Item], size_bytes: int, least: int | None, rows: int | None, parallelism: int
) -> None:
    options = SourceOptions(
        max_bytes_per_partition=size_bytes,
        min_partitions=least,
        max_records_per_partition=rows,
    )
    planned_scan = plan([scan_of(listed)], options, parallelism=parallelism)
    expected = [
        (item.ledger_id, entry)
        for item in listed
        for entry in range(item.first_entry_id, item.last_entry_id + 1 - item.has_index)
    ]
    assert entries(planned_scan) == expected
    assert sum(p.rows for p in planned_scan.partitions) == sum(item.rows for item in listed)
    assert sum(p.size_bytes for p in planned_scan.partitions) == sum(i.size_bytes for i in listed)


@settings(deadline=None)
@given(listed=items(), edges=st.tuples(st.integers(0, 7000), st.integers(0, 7000)))
def test_offsets_keep_exactly_the_rows_between_them(
    listed: list[Item], edges: tuple[int, int]
) -> None:
    end = listed[-1].end_offset if listed else 0
    start, behind = sorted(min(edge, end) for edge in edges)
    options = SourceOptions(starting_offsets={"*": start}, ending_offsets={"*": behind})
    planned_scan = plan([scan_of(listed)], options)
    kept = [
        offset
        for partition in planned_scan.partitions
        for scanned in partition.ranges
        for offset in range(scanned.start_offset, scanned.end_offset)
    ]
    assert kept == list(range(start, behind))
