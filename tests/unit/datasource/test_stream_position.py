"""The position of a stream, its reads, and the reasons to stop: offsets, selection, positions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerlog_spark.datasource.options.values import LogSelection, SourceOptions
from ledgerlog_spark.datasource.stream.position import (
    LogOffset,
    check_checkpoint,
    committed_ms,
    json_of,
    offsets_of,
    overwrite_after,
    readable_from,
)
from ledgerlog_spark.errors import ConfigurationError, DataLossError, LogError
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import Operation, VersionInterval

LENIENT = SourceOptions(fail_on_data_loss=False, on_overwrite="continue")


def version(
    number: int, start: int, end: int, operation: Operation = Operation.APPEND
) -> VersionInterval:
    return VersionInterval(number, start, end, number * 100, "0" * 32, 0, operation)


CREATED = version(0, 0, 0, Operation.CREATE)


def view(*versions: VersionInterval, oldest: int | None = None) -> LogView:
    newest = versions[-1]
    retained = versions[0].start_offset if oldest is None else oldest
    return LogView(
        "id", "flights", retained, newest.start_offset, newest.end_offset, retained, (), versions,
        {}, 0,
    )  # fmt: skip


def test_offsets_are_written_with_sorted_names_so_that_equal_ones_are_equal_text() -> None:
    one = json.dumps(json_of({"b": LogOffset("y", 2), "a": LogOffset("x", 1)}))
    assert one == '{"a": {"id": "x", "offset": 1}, "b": {"id": "y", "offset": 2}}'
    assert json_of(offsets_of(json.loads(one))) == json.loads(one)


@pytest.mark.parametrize(
    "stored",
    [
        {"topic": {"0": 12}},
        {"logOffset": 3},
        {"flights": {"id": "x", "offset": "12"}},
        {"flights": {"id": 1, "offset": 12}},
        {"flights": {"id": "x", "offset": -1}},
        [1],
        7,
    ],
)
def test_a_checkpoint_of_another_source_is_refused_with_what_to_do(stored: Any) -> None:
    with pytest.raises(ConfigurationError, match="a separate checkpointLocation"):
        offsets_of(stored)


def test_a_pattern_selects_whole_names_and_names_select_themselves() -> None:
    pattern = LogSelection(pattern="flights-.*")
    assert pattern.among(["flights-1", "my-flights-1", "flights-"]) == ("flights-1", "flights-")
    assert "flights-9" in pattern
    named = LogSelection(names=("b", "a"))
    assert named.among(["x"]) == ("b", "a")
    assert "x" not in named


def test_a_checkpoint_of_other_logs_is_refused_and_one_that_shares_a_log_is_not() -> None:
    with pytest.raises(ConfigurationError, match="belongs to log 'ships', but the query reads log"):
        check_checkpoint(LogSelection(names=("flights",)), ["ships"])
    check_checkpoint(LogSelection(names=("flights",)), ["flights", "ships"])
    check_checkpoint(LogSelection(pattern="f.*"), [])


def test_a_stream_goes_on_where_it_was() -> None:
    log = view(CREATED, version(1, 0, 10), version(2, 0, 25))
    for offset in (0, 7, 10, 25):
        assert readable_from(log, offset, SourceOptions(), accepted_version=None) == offset


def test_a_log_that_became_shorter_is_data_loss() -> None:
    log = view(CREATED, version(1, 0, 10))
    with pytest.raises(DataLossError, match=r"at offset 11 .* ends at 10.*failOnDataLoss"):
        readable_from(log, 11, SourceOptions(), accepted_version=None)
    assert readable_from(log, 11, LENIENT, accepted_version=None) == 10


def test_rows_truncated_before_they_were_read_are_data_loss_with_their_number() -> None:
    log = view(version(4, 20, 25, Operation.TRUNCATE), oldest=20)
    with pytest.raises(DataLossError, match=r"13 rows were truncated.*failOnDataLoss"):
        readable_from(log, 7, SourceOptions(), accepted_version=None)
    assert readable_from(log, 7, LENIENT, accepted_version=None) == 20
    assert readable_from(log, 20, SourceOptions(), accepted_version=None) == 20


def test_an_overwrite_stops_a_stream_that_had_not_read_everything() -> None:
    log = view(CREATED, version(1, 0, 10), version(2, 10, 14, Operation.OVERWRITE))
    with pytest.raises(LogError, match=r"by version 2: the rows before offset 10.*onOverwrite"):
        readable_from(log, 6, SourceOptions(), accepted_version=1)
    assert readable_from(log, 6, LENIENT, accepted_version=1) == 6


def test_an_overwrite_stops_a_stream_that_had_read_everything() -> None:
    log = view(CREATED, version(1, 0, 10), version(2, 10, 14, Operation.OVERWRITE))
    for accepted in (None, 1):
        with pytest.raises(LogError, match="was overwritten by version 2"):
            readable_from(log, 10, SourceOptions(), accepted_version=accepted)


def test_an_overwrite_before_the_stream_began_does_not_stop_it() -> None:
    log = view(CREATED, version(1, 0, 10), version(2, 10, 14, Operation.OVERWRITE))
    assert readable_from(log, 10, SourceOptions(), accepted_version=2) == 10
    assert readable_from(log, 12, SourceOptions(), accepted_version=None) == 12


def test_an_overwrite_of_nothing_does_not_stop_a_stream() -> None:
    log = view(CREATED, version(1, 0, 14, Operation.OVERWRITE))
    assert readable_from(log, 0, SourceOptions(), accepted_version=0) == 0
    emptied = view(version(7, 14, 14, Operation.TRUNCATE), version(8, 14, 20, Operation.OVERWRITE))
    assert readable_from(emptied, 14, SourceOptions(), accepted_version=None) == 14


def test_truncation_up_to_where_the_stream_is_is_no_overwrite() -> None:
    log = view(version(3, 10, 14, Operation.TRUNCATE), version(4, 10, 20))
    assert readable_from(log, 10, SourceOptions(), accepted_version=None) == 10


def test_an_overwrite_that_the_history_has_forgotten_is_told_by_the_start() -> None:
    log = view(version(9, 10, 14), oldest=0)
    with pytest.raises(LogError, match="the rows before offset 10"):
        readable_from(log, 6, SourceOptions(), accepted_version=None)


def test_a_restored_version_is_an_overwrite() -> None:
    log = view(version(1, 0, 10), version(2, 10, 14, Operation.RESTORE))
    found = overwrite_after(log.versions, 3, None)
    assert found is not None
    assert found.version == 2


def test_rows_were_committed_with_the_first_version_that_has_them() -> None:
    versions = [CREATED, version(1, 0, 10), version(2, 0, 25)]
    assert [committed_ms(versions, n) for n in (0, 9, 10, 24, 25)] == [100, 100, 200, 200, 0]
