"""Rows of a listed range, as merging and restoring read them (ledgerlog_spark.upkeep.rows)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import BatchEncoder, encode_schema
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.upkeep.rows import rows_of

SCHEMA = pa.schema([("n", pa.int64())])
ITEM = Item(7, 1, 3, NO_ENTRY, rows=9, size_bytes=99, first_offset=100, schema_id=0)


def entry(first_row: int) -> Any:
    batch = pa.record_batch([pa.array(range(first_row, first_row + 3))], schema=SCHEMA)
    return SimpleNamespace(payload=BatchEncoder(SCHEMA).encode(batch, first_row))


class Entries:
    """Entries of three rows that begin with these values."""

    def __init__(self, *first_rows: int) -> None:
        self._batches = [[entry(first)] for first in first_rows]

    async def following(self) -> Any:
        return self._batches.pop(0) if self._batches else None

    async def aclose(self) -> None:
        """Do nothing, because no request is pending."""


def read(*first_rows: int, **offsets: int) -> list[int]:
    async def rows() -> list[int]:
        entries: Any = Entries(*first_rows)
        found = rows_of(ITEM, encode_schema(SCHEMA), entries, log="flights", **offsets)
        return [row async for batch in found for row in batch.column(0).to_pylist()]

    return asyncio.run(rows())


@pytest.mark.parametrize(
    ("start", "end"), [(100, 109), (100, 101), (102, 104), (103, 106), (108, 109), (104, 104)]
)
def test_a_part_has_the_rows_between_its_offsets(start: int, end: int) -> None:
    assert read(0, 3, 6, start_offset=start, end_offset=end) == list(range(start - 100, end - 100))
