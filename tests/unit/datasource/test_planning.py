"""The data that is sent to the tasks of a scan (ledgerlog_spark.datasource.scan.planning)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.recent_records import memory_size_bytes
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan import planning
from ledgerlog_spark.datasource.scan.plan import LogScan
from ledgerlog_spark.errors import SchemaMismatchError
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.log.state.records import Item, LogSnapshot, VersionInterval

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a", "b", "c")),), LedgerState.OPEN)


class Logs:
    """The logs of a cluster. One of their ledgers does not exist any more."""

    def __init__(self, gone: int) -> None:
        self.asked: list[list[int]] = []
        self.gone = gone

    def records(self, ledger_ids: Sequence[int]) -> dict[int, LedgerMetadata]:
        self.asked.append(list(ledger_ids))
        return {ledger_id: RECORD for ledger_id in ledger_ids if ledger_id != self.gone}


@pytest.fixture
def logs() -> Any:
    return Logs(gone=2)


def scan() -> LogScan:
    """Three ledgers of ten entries, of which the last is large enough for several tasks."""
    sizes = (100, 100, 10_000)
    items = tuple(
        Item(ledger_id, 1, 11, 11, 10, size, 10 * place, 0)
        for place, (ledger_id, size) in enumerate(zip((1, 2, 3), sizes, strict=True))
    )
    interval = VersionInterval(1, 0, 30, 0, "0" * 32, 0)
    return LogScan(LogSnapshot("id", "flights", interval, items, {0: b"schema"}))


def test_tasks_carry_the_records_of_their_ledgers_which_are_asked_for_at_once(logs: Any) -> None:
    options = SourceOptions(max_bytes_per_partition=4_000)
    tasks = planning.tasks_from(logs, [scan()], options)
    assert [sorted({scanned.ledger_id for scanned in task.ranges}) for task in tasks] == [
        [1],
        [2],
        [3],
        [3],
        [3],
    ]
    assert [dict(task.ledgers) for task in tasks] == [{1: RECORD}, {}, *[{3: RECORD}] * 3]
    assert [sorted(asked) for asked in logs.asked] == [[1, 2, 3]]


def test_of_too_many_ledgers_those_that_several_tasks_read_come_first(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "RECORDS_MAX", 1)
    options = SourceOptions(max_bytes_per_partition=4_000)
    planning.tasks_from(logs, [scan()], options)
    assert logs.asked == [[3]]


def test_a_large_record_is_not_copied_to_every_task(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "RECORD_SIZE_BYTES_MAX", memory_size_bytes(RECORD) - 1)
    tasks = planning.tasks_from(logs, [scan()], SourceOptions())
    assert logs.asked
    assert all(task.ledgers == {} for task in tasks)


def test_a_schema_that_the_log_does_not_have_is_an_error_that_names_the_log(logs: Any) -> None:
    known = scan()
    unknown = replace(known, snapshot=replace(known.snapshot, schemas={1: b"another"}))
    with pytest.raises(SchemaMismatchError, match="log 'flights' lists rows of schema 0"):
        planning.tasks_from(logs, [unknown], SourceOptions())


def test_a_scan_of_nothing_asks_for_nothing(logs: Any) -> None:
    nothing = SourceOptions(starting_offsets={"*": 30})
    assert planning.tasks_from(logs, [scan()], nothing) == []
    assert logs.asked == []
