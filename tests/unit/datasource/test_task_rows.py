"""Lost rows in a task (ledgerlog_spark.datasource.scan.task_rows)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledgerlog_spark.datasource.scan import task_rows
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def test_behind_a_range_that_is_lost_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_batches(task: Any, *_: object, **__: object) -> Iterator[Any]:
        (scanned,) = task.ranges
        yield f"{scanned} begins"
        if scanned == "lost":
            raise DataLossError("gone", log="flights")
        yield f"{scanned} ends"

    monkeypatch.setattr(task_rows, "read_batches", read_batches)
    ranges: Any = ("first", "lost", "last")
    task = ScanTask(ranges, {}, {})
    rows = list(task_rows._without_lost(task, pa.schema([]), lambda _: (), True))
    assert rows == ["first begins", "first ends", "lost begins", "last begins", "last ends"]
    assert "rows skipped by failOnDataLoss=false" in caplog.text
