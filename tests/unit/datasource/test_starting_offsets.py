"""The begin and end of reads (ledgerlog_spark.datasource.options.starting_offsets)."""

from __future__ import annotations

import pytest

from ledgerlog_spark.datasource.options.starting_offsets import (
    absolute_ms,
    checked_offset,
    ending_offset_at,
    offset_at,
    offset_for,
    parse_duration,
    parse_moment,
    start_or_else,
)
from ledgerlog_spark.errors import ConfigurationError, DataLossError
from ledgerlog_spark.protocol.log.state.records import Operation, VersionInterval


def version(
    number: int, start: int, end: int, ms: int, operation: Operation = Operation.APPEND
) -> VersionInterval:
    return VersionInterval(number, start, end, ms, "0" * 32, 0, operation)


APPENDED = [version(0, 0, 0, 100), version(1, 0, 10, 200), version(2, 0, 25, 300)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31 12:00:00.5", 1_769_860_800_500),
        ("2026-01-31", 1_769_817_600_000),
        ("-10m", -600_000),
        ("-2d", -172_800_000),
        ("-0s", -1),
    ],
)
def test_moments_are_milliseconds_iso_times_or_how_long_ago(text: str, expected: int) -> None:
    assert parse_moment(text) == expected


def test_a_moment_before_now_is_counted_from_now() -> None:
    assert absolute_ms(-600_000, now_ms=1_000_000) == 400_000
    assert absolute_ms(5, now_ms=1_000_000) == 5
    assert absolute_ms(-5, now_ms=3) == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("15m", 900_000), ("250", 250), ("250ms", 250), ("1 h", 3_600_000)]
)
def test_durations_have_units_or_are_milliseconds(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "m", "1.5h", "-1s", "3 weeks"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ("earliest", 5),
        ("latest", 90),
        ({"*": 7}, 7),
        ({"flights": 8, "*": 7}, 8),
        ({"flights": -2}, 5),
        ({"flights": -1}, 90),
        ({"ships": 3}, 90),
    ],
)
def test_offsets_of_a_log_are_numbers_words_or_kafkas_numbers(
    offsets: dict[str, int] | str, expected: int
) -> None:
    assert offset_for(offsets, "flights", start=5, end=90, default="latest") == expected


@pytest.mark.parametrize(
    ("moment_ms", "expected"), [(0, 0), (200, 0), (201, 10), (300, 10), (301, None)]
)
def test_a_moment_is_the_first_row_committed_then_or_later(
    moment_ms: int, expected: int | None
) -> None:
    assert offset_at(APPENDED, moment_ms) == expected


def test_a_moment_before_an_overwrite_is_where_the_newest_version_begins() -> None:
    history = [*APPENDED, version(3, 25, 40, 400, Operation.OVERWRITE)]
    assert offset_at(history, 150) == 25
    assert offset_at(history, 400) == 25


def test_truncation_commits_no_row() -> None:
    history = [*APPENDED, version(3, 20, 25, 400, Operation.TRUNCATE)]
    assert offset_at(history, 350) is None
    assert offset_at(history, 150) == 20


def test_rows_of_the_oldest_version_that_is_kept_count_as_committed_with_it() -> None:
    assert offset_at(APPENDED[2:], 250) == 0


def test_an_empty_log_has_no_row_at_any_moment() -> None:
    assert offset_at(APPENDED[:1], 0) is None


def test_a_start_behind_the_newest_commit_is_an_error_or_the_end() -> None:
    newest = {"end_offset": 25, "newest_ms": 300}
    with pytest.raises(ConfigurationError, match=r"newest commit was at 1970.*Strategy"):
        start_or_else("flights", offset_at(APPENDED, 301), strategy="error", **newest)
    assert start_or_else("flights", None, strategy="latest", **newest) == 25
    assert start_or_else("flights", 10, strategy="error", **newest) == 10


def test_an_end_by_time_is_behind_the_rows_committed_before_it() -> None:
    assert ending_offset_at(APPENDED, 300) == 10
    assert ending_offset_at(APPENDED, 999) == 25
    assert ending_offset_at(APPENDED, 1) == 0


def checked(offset: int, *, version: int | None = 3, fail_on_data_loss: bool = True) -> int:
    return checked_offset(
        "startingOffsets",
        "flights",
        offset,
        start=5,
        end=90,
        version=version,
        fail_on_data_loss=fail_on_data_loss,
    )


def test_a_start_behind_the_end_is_an_error_that_names_the_end_and_what_to_give() -> None:
    with pytest.raises(ConfigurationError, match=r"ends at offset 90\. Set an offset from 5"):
        checked(91)


def test_a_start_before_the_first_row_is_data_loss_unless_told_otherwise() -> None:
    with pytest.raises(DataLossError, match="version 3 of log 'flights' begins at 5"):
        checked(4)
    assert checked(4, fail_on_data_loss=False) == 5
    assert checked(6) == 6


def test_what_is_said_of_a_leader_log_names_no_version() -> None:
    with pytest.raises(ConfigurationError, match="is 91, but log 'flights' ends at offset 90"):
        checked(91, version=None)
    with pytest.raises(DataLossError, match="is 4, but log 'flights' begins at 5"):
        checked(4, version=None)
