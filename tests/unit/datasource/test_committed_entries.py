"""Ranges of a task that are read ahead (ledgerlog_spark.datasource.scan.task_rows)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import (
    BYTES_AHEAD_MAX,
    RANGES_AHEAD_MAX,
    CommittedEntries,
)
from ledgerlog_spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from ledgerlog_spark.protocol.ledger.slices import SliceSource

RANGE = ScanRange("a", 0, 1, 2, 10, 1000, 0, 0, 0, 10, ())


class Ranges:
    """The logs of a cluster in which every range is one batch: its ledger's id."""

    def __init__(self, lost: frozenset[int] = frozenset()) -> None:
        self.begun: list[tuple[str, int]] = []
        self.open: set[int] = set()
        self.lost = lost
        self._name = ""

    def open_by_id(self, name: str, _log_id: str) -> Ranges:
        self._name = name
        return self

    def begin_ranges(
        self,
        ranges: Sequence[tuple[int, int, int]],
        *,
        password: bytes,
        room: ReadRoom | None = None,  # noqa: ARG002
        slices: Sequence[SliceSource | None] | None = None,
    ) -> list[Reading]:
        assert password == b"secret"
        assert not any(slices or ()), "these ranges are too small for slices"
        self.begun += [(self._name, ledger_id) for ledger_id, _, _ in ranges]
        self.open |= {ledger_id for ledger_id, _, _ in ranges}
        return [Reading(self, ledger_id) for ledger_id, _, _ in ranges]


class Reading:
    def __init__(self, ranges: Ranges, ledger_id: int) -> None:
        self._ranges = ranges
        self._ledger_id = ledger_id

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self.close()
        if self._ledger_id in self._ranges.lost:
            raise DataLossError("gone", ledger_id=self._ledger_id)
        yield (self._ledger_id,)

    def close(self) -> None:
        self._ranges.open.discard(self._ledger_id)


def task_of(ranges: Sequence[ScanRange]) -> ScanTask:
    return ScanTask(tuple(ranges), {"a": "id-a", "b": "id-b"}, {})


@pytest.fixture
def cluster() -> Any:
    return Ranges(lost=frozenset({99}))


def test_ranges_come_in_order_and_small_ones_are_begun_ahead(cluster: Any) -> None:
    listed = [replace(RANGE, log="ab"[n > 20], ledger_id=n) for n in range(40)]
    with CommittedEntries(cluster, task_of(listed), b"secret") as entries:
        assert list(entries(listed[0])) == [0]
        assert len(cluster.begun) == RANGES_AHEAD_MAX + 1
        assert [list(entries(scanned)) for scanned in listed[1:]] == [[n] for n in range(1, 40)]
    assert cluster.begun == [(scanned.log, scanned.ledger_id) for scanned in listed]


def test_of_large_ranges_one_is_begun_ahead(cluster: Any) -> None:
    listed = [replace(RANGE, ledger_id=n, size_bytes=BYTES_AHEAD_MAX) for n in range(5)]
    with CommittedEntries(cluster, task_of(listed), b"secret") as entries:
        assert list(entries(listed[0])) == [0]
        assert [ledger_id for _, ledger_id in cluster.begun] == [0, 1]


def test_what_nobody_took_is_closed_at_the_end(cluster: Any) -> None:
    listed = [replace(RANGE, ledger_id=n) for n in range(5)]
    with CommittedEntries(cluster, task_of(listed), b"secret") as entries:
        assert list(entries(listed[0])) == [0]
        assert cluster.open == {1, 2, 3, 4}
    assert cluster.open == set()


def test_after_a_lost_range_the_next_one_is_read(cluster: Any) -> None:
    listed = [replace(RANGE, ledger_id=n) for n in (99, 1)]
    with CommittedEntries(cluster, task_of(listed), b"secret") as entries:
        with pytest.raises(DataLossError, match=r'gone.*"failOnDataLoss" to "false"'):
            list(entries(listed[0]))
        assert list(entries(listed[1])) == [1]
    assert cluster.begun == [("a", 99), ("a", 1)]
