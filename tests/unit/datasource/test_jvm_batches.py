"""Micro-batches for the JVM engine (ledgerlog_spark.datasource.jvm.batches)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.worker_util import pickleSer

from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.jvm import answers
from ledgerlog_spark.datasource.jvm.batches import planned_batch
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.reader import LogPartition
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import NO_ENTRY

NAMES = [f"c{number}" for number in range(10)]


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


@pytest.mark.parametrize(("columns", "has_slices"), [(NAMES[:1], True), (NAMES, False)])
def test_the_engine_reads_slices_where_they_pay_for_the_columns_of_its_query(
    monkeypatch: pytest.MonkeyPatch, columns: list[str], *, has_slices: bool
) -> None:
    """The stream has planned its tasks for all columns."""
    schema = encode_schema(pa.schema([(name, pa.int64()) for name in NAMES]))
    scanned = ScanRange(
        "events", 7, 1, 9, 99_999, 9 << 20, 0, 0, 0, 99_999, (),
        slices_entry_id=10, index_entries=9,
    )  # fmt: skip
    task = ScanTask((scanned,), {"events": "id"}, {("events", 0): schema})
    request = {
        "format": 1,
        "options": {"log": "events"},
        "table": json_of(NAMES),
        "columns": json_of(columns),
        "tasks": [pickled(LogPartition(task, b""))],
    }
    monkeypatch.setattr(answers, "_answer", lambda _, scan, *others: {"scan": scan, "of": others})
    planned = answers.answer_to(LedgerDataSource, request)["scan"]
    ((found,),) = [each.ranges for each in planned.plan.partitions]
    assert found == (scanned if has_slices else replace(scanned, slices_entry_id=NO_ENTRY))


def json_of(names: list[str]) -> str:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.parametrize("tasks", [[], [pickled("text")]])
def test_tasks_of_others_are_refused(tasks: list[str]) -> None:
    with pytest.raises(WireFormatError, match="is not a LogPartition of this package"):
        planned_batch(tasks)
