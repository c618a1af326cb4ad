"""The rows of later queries of the JVM engine (ledgerlog_spark.datasource.scan.pinned)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.datasource.jvm.answers import answer_to
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.pinned import (
    PINNED_OPTION,
    PinnedLog,
    logs_in,
    text_of_logs,
)
from ledgerlog_spark.datasource.scan.reader import BatchReader
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.datasource.write.writer import BatchWriter
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.fixtures.blocking_world import URI, BlockingWorld, blocking_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.client.client import LedgerClient

__all__ = ["blocking_world"]
LOG = "flights"
N = '{"name":"n","type":"long","nullable":true,"metadata":{}}'
COLUMNS = f'{{"type":"struct","fields":[{N}]}}'


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"log": LOG, "metadataServiceUri": URI, **given})


def write(rows: range, *, overwrite: bool = False) -> None:
    writer = BatchWriter(URI, options().for_write(), COLUMNS, overwrite=overwrite)
    batch = pa.record_batch({"n": pa.array(rows, pa.int64())})
    writer.commit([writer.write(iter([batch]))])


def read(pinned: str | None, **given: str) -> list[int]:
    reader = BatchReader(URI, options(**given).for_read(), COLUMNS, pinned=pinned)
    return [n for (n,) in _rows(reader)]


def _rows(reader: Any) -> Iterator[tuple[Any, ...]]:
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from zip(*batch.to_pydict().values(), strict=True)


def pinned_by(**given: str) -> str:
    reader = BatchReader(URI, options(**given).for_read(), COLUMNS)
    return text_of_logs(reader.planned(b"").pinned)


def request(table: str = COLUMNS, **more: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "options": {"metadataServiceUri": URI, "log": LOG},
        "table": table,
        "columns": table,
        "case_sensitive": False,
        "filters": [],
        **more,
    }


def test_pinned_rows_are_those_of_the_version_and_the_offsets(
    blocking_world: BlockingWorld,
) -> None:
    write(range(4))
    write(range(4, 6))
    whole, some = pinned_by(), pinned_by(startingOffsets="1")
    (log,) = logs_in(some).values()
    assert log == PinnedLog(log.log_id, 2, 1, 6)
    write(range(6, 9))
    write(range(90, 99), overwrite=True)
    assert read(whole) == [0, 1, 2, 3, 4, 5]
    assert read(some, startingOffsets="1") == [1, 2, 3, 4, 5]
    assert read(None) == list(range(90, 99))
    assert blocking_world.client is not None


def test_a_plan_from_pinned_rows_pins_the_same_rows(blocking_world: BlockingWorld) -> None:
    write(range(4))
    first = pinned_by()
    write(range(4, 6))
    reader = BatchReader(URI, options().for_read(), COLUMNS, pinned=first)
    assert text_of_logs(reader.planned(b"").pinned) == first
    assert blocking_world.client is not None


def test_a_log_that_is_created_again_is_not_the_pinned_one(
    blocking_world: BlockingWorld,
) -> None:
    write(range(4))
    first = pinned_by()

    async def delete(client: LedgerClient) -> None:
        await (await logs_of(client).open(LOG)).delete()

    blocking_world.client.run(delete)
    write(range(9))
    with pytest.raises(LogNotFoundError):
        read(first)


def test_a_leader_log_is_pinned_at_its_end(blocking_world: BlockingWorld) -> None:
    async def lead(client: LedgerClient) -> Any:
        log = await logs_of(client).open_or_create(
            LOG, kind=LogKind.LEADER, content=LogContent.RECORDS
        )
        leader = await log.lead(ClientSettings())
        for value in (b"a", b"b"):
            await leader.append(value)
            await leader.roll()
        return leader

    leader = blocking_world.client.run(lead)
    values = COLUMNS.replace('"n"', '"value"').replace("long", "binary")
    reader = BatchReader(URI, options().for_read(), values)
    pinned = text_of_logs(reader.planned(b"").pinned)
    (log,) = logs_in(pinned).values()
    assert log == PinnedLog(log.log_id, None, 0, 2)

    async def go_on(_: LedgerClient) -> None:
        await leader.append(b"c")
        await leader.roll()
        await leader.close()

    blocking_world.client.run(go_on)
    again = BatchReader(URI, options().for_read(), values, pinned=pinned)
    assert list(_rows(again)) == [(b"a",), (b"b",)]
    assert list(_rows(BatchReader(URI, options().for_read(), values)))[2:] == [(b"c",)]


def test_every_answer_has_the_pinned_rows_and_takes_them(blocking_world: BlockingWorld) -> None:
    write(range(4))
    first = answer_to(LedgerDataSource, request())
    write(range(4, 6))
    again = answer_to(LedgerDataSource, request(pinned=first["pinned"]))
    assert again["pinned"] == first["pinned"]
    assert again["plan"]["partitions"] == first["plan"]["partitions"]
    newest = answer_to(LedgerDataSource, request())
    assert newest["plan"]["partitions"] != first["plan"]["partitions"]
    count = [{"function": "count"}]
    counted = answer_to(LedgerDataSource, request(aggregates=count, pinned=first["pinned"]))
    assert (counted["aggregates"], counted["pinned"]) == ([4], first["pinned"])
    assert answer_to(LedgerDataSource, request(aggregates=count))["aggregates"] == [6]
    assert blocking_world.client is not None


def test_a_delegated_scan_has_the_pinned_rows_in_its_options(
    blocking_world: BlockingWorld,
) -> None:
    write(range(4))
    doubles = COLUMNS.replace("long", "double")
    answer = answer_to(LedgerDataSource, request(doubles))
    assert "stored as int64" in answer["delegate"]
    write(range(9), overwrite=True)
    assert answer["options"][PINNED_OPTION] == answer["pinned"]
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(doubles))
    reader = LedgerDataSource(options=answer["options"]).reader(schema)
    assert list(_rows(reader)) == [(0.0,), (1.0,), (2.0,), (3.0,)]
    assert blocking_world.client is not None


def test_a_ledger_is_pinned_at_its_last_entry(blocking_world: BlockingWorld) -> None:
    async def create(client: LedgerClient) -> Any:
        ledger = await client.create_ledger()
        await ledger.append_batch([b"a", b"b"])
        return ledger

    ledger = blocking_world.client.run(create)
    given = {"metadataServiceUri": URI, "ledgerId": str(ledger.id)}
    source = LedgerDataSource(options=given)
    columns = source.schema().json()
    answer = answer_to(LedgerDataSource, request(columns, options=given))
    seen = int(answer["pinned"]) + 1

    async def go_on(_: LedgerClient) -> None:
        await ledger.append_batch([b"c", b"d"])
        await ledger.close()

    blocking_world.client.run(go_on)
    pinned = LedgerDataSource(options=answer["options"]).reader(source.schema())
    assert [payload for _, _, payload in _rows(pinned)] == [b"a", b"b"][:seen]
    assert len(list(_rows(source.reader(source.schema())))) == 4
    again = answer_to(LedgerDataSource, request(columns, options=given, pinned=answer["pinned"]))
    assert again == answer
