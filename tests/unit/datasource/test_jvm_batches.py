"""Micro-batches for the JVM engine (ledgerlog_spark.datasource.jvm.batches)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pyspark.worker_util import pickleSer

from ledgerlog_spark.datasource.jvm.batches import planned_batch
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.reader import LogPartition
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.errors import WireFormatError


def pickled(value: Any) -> str:
    return base64.b64encode(pickleSer.dumps(value)).decode()


def partition(ledger_id: int) -> LogPartition:
    scanned = ScanRange("events", ledger_id, 1, 4, 30, 900, 0, 0, 0, 30, ())
    return LogPartition(ScanTask((scanned,), {"events": "id"}, {("events", 0): b"s"}), b"secret")


def test_the_plan_has_the_tasks_of_the_stream_in_their_order() -> None:
    partitions = [partition(7), partition(5)]
    scan, password = planned_batch([pickled(each) for each in partitions])
    assert password == b"secret"
    assert [each.ranges for each in scan.plan.partitions] == [p.task.ranges for p in partitions]
    assert scan.schemas == {("events", 0): b"s"}
    assert scan.log_ids == {"events": "id"}


@pytest.mark.parametrize("tasks", [[], [pickled("text")]])
def test_tasks_of_others_are_refused(tasks: list[str]) -> None:
    with pytest.raises(WireFormatError, match="not those of this package"):
        planned_batch(tasks)
