"""Rows of listed ranges, as each caller of ledgerlog_spark.log.reading.listed_rows reads them.

If a ledger has other rows than its log lists, each of these readers raises an error.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import BatchEncoder, encode_schema
from ledgerlog_spark.cli.logs.commands import _batches
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.task import ScanTask, read_batches
from ledgerlog_spark.errors import DataLossError, LedgerLogError, WireFormatError
from ledgerlog_spark.log.reading.listed_rows import RowCutter
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import Item, LogSnapshot, VersionInterval
from ledgerlog_spark.upkeep.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SCHEMA = pa.schema([("n", pa.int64())])
STORED = encode_schema(SCHEMA)
ITEM = Item(7, 1, 3, NO_ENTRY, rows=9, size_bytes=99, first_offset=100, schema_id=0)
START, END = 101, 108


def entries(first_rows: Iterable[int]) -> list[Any]:
    """Entries of three rows that begin with these."""
    encoder = BatchEncoder(SCHEMA)
    return [
        SimpleNamespace(
            entry_id=entry_id,
            payload=encoder.encode(
                pa.record_batch([pa.array(range(first, first + 3))], schema=SCHEMA), first
            ),
        )
        for entry_id, first in enumerate(first_rows, ITEM.first_entry_id)
    ]


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def scanned(found: list[Any]) -> list[int]:
    last_entry_id = ITEM.first_entry_id + len(found) - 1
    scanned = ScanRange(
        "flights", 7, 1, last_entry_id, 9, 99, 0, 100, START, END, (), entry_rows=(0, 9)
    )
    task = ScanTask((scanned,), {"flights": "id"}, {("flights", 0): STORED})
    return numbers(read_batches(task, SCHEMA, lambda _: found))


def merged(found: list[Any]) -> list[int]:
    batches = [[entry] for entry in found]

    class Reading:
        async def following(self) -> Any:
            return batches.pop(0) if batches else None

        async def aclose(self) -> None:
            """Do nothing, because no request is pending."""

    async def rows() -> list[Any]:
        reading: Any = Reading()
        read = rows_of(ITEM, STORED, reading, log="flights", start_offset=START, end_offset=END)
        return [batch async for batch in read]

    return numbers(asyncio.run(rows()))


def printed(found: list[Any]) -> list[int]:
    interval = VersionInterval(1, START, END, 0, "0" * 32, 0)
    snapshot = LogSnapshot("id", "flights", interval, (ITEM,), {0: STORED})
    log: Any = SimpleNamespace(name="flights", read_range=lambda *_, **__: iter([found]))
    return numbers(_batches(log, snapshot, b""))


READERS = pytest.mark.parametrize("read", [scanned, merged, printed])


@READERS
def test_rows_are_cut_to_those_wanted(read: Callable[[list[Any]], list[int]]) -> None:
    assert read(entries((0, 3, 6))) == list(range(START - 100, END - 100))


@READERS
@pytest.mark.parametrize(
    ("first_rows", "finding"),
    [
        ((3, 6), "entry 1 of ledger 7 has 3 as its first row: 0 was expected"),
        ((0, 6), "entry 2 of ledger 7 has 6 as its first row: 3 was expected"),
        ((0, 0, 3), "entry 2 of ledger 7 has 0 as its first row: 3 was expected"),
        ((0, 3), "hold rows up to 6 of their range, but log .* lists rows up to 9"),
        ((0, 3, 6, 9), "hold rows up to 12 of their range, but log .* lists rows up to 9"),
    ],
)
def test_other_rows_than_are_listed_are_an_error(
    read: Callable[[list[Any]], list[int]], first_rows: tuple[int, ...], finding: str
) -> None:
    with pytest.raises(LedgerLogError, match=finding) as caught:
        read(entries(first_rows))
    assert isinstance(caught.value, DataLossError if read is merged else WireFormatError)


def test_a_part_whose_rows_are_not_known_begins_anywhere_and_goes_on_without_gap() -> None:
    cutter = RowCutter("a", 7, range(4, 9), range_offset=100, rows=None, wanted=range(1_000))
    assert list(cutter.take(30, 5)) == [0, 1, 2, 3, 4]
    assert cutter.next_entry_id == 5
    with pytest.raises(WireFormatError, match="entry 5 of ledger 7 has 36 as its first row"):
        cutter.take(36, 5)
    cutter.finish()
    fresh = RowCutter("a", 7, range(4, 9), range_offset=100, rows=None, wanted=range(1_000))
    with pytest.raises(WireFormatError, match="this source wrote no such entry"):
        fresh.take(-1, 5)
