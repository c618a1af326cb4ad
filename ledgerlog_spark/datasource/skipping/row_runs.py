"""Consecutive rows of a log with their statistics: a listed range, or one entry of a range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ledgerlog_spark.arrow.spark_types import place_of
from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.datasource.scan.ranges import RangeIndex, ScanRange
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.datasource.skipping.facts import ALL_NULL, Facts, facts_of
from ledgerlog_spark.datasource.skipping.predicates import FactsOf
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.protocol.log.state.statistics import (
    COLUMNS_MAX,
    ColumnStatistics,
    decode_statistics,
)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Consecutive rows and their encoded statistics. Unknown statistics are empty bytes."""

    log: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    first_offset: int
    rows: int
    statistics: bytes


def run_of_item(log: str, item: Item) -> RowRun:
    """Return the run that consists of all rows of a listed range."""
    return RowRun(
        log,
        item.ledger_id,
        item.first_entry_id,
        item.last_entry_id - item.has_index,
        item.first_offset,
        item.rows,
        item.statistics,
    )


def runs_of_entries(scanned: ScanRange, index: RangeIndex) -> Iterator[tuple[int, RowRun]]:
    """Yield each entry's place in the listed range, and its rows, for the entries of `scanned`."""
    first = scanned.first_entry_id - index.first_entry_id
    for place in range(first, scanned.last_entry_id + 1 - index.first_entry_id):
        entry_id = index.first_entry_id + place
        row = index.row_edges[place]
        yield (
            place,
            RowRun(
                scanned.log,
                scanned.ledger_id,
                entry_id,
                entry_id,
                scanned.range_offset + row,
                index.row_edges[place + 1] - row,
                index.statistics[place] if index.statistics else b"",
            ),
        )


class StoredColumns:
    """The columns of one stored schema. `facts` returns the `Facts` about them in a run of rows."""

    def __init__(self, schema: bytes, *, include_metadata: bool) -> None:
        self.schema: pa.Schema = decode_schema(schema)
        self._include_metadata = include_metadata

    def has_bounds(self, column: str) -> bool:
        """Whether the index of a range can contain bounds of the column."""
        if self.is_metadata(column):
            return column in {"_offset", "_entry"}
        place = place_of(column, self.schema.names)
        return place is not None and place < COLUMNS_MAX

    def facts(self, run: RowRun) -> FactsOf:
        """Return a function that maps a column's name to the facts about this column in the run."""
        known: dict[int, ColumnStatistics] = {}
        if run.statistics:
            known = {column.column: column for column in decode_statistics(run.statistics)}

        def of(column: str) -> Facts:
            if self.is_metadata(column):
                return _of_metadata(column, run)
            place = place_of(column, self.schema.names)
            if place is None:
                return ALL_NULL
            return facts_of(self.schema.field(place).type, run.rows, known.get(place))

        return of

    def is_metadata(self, column: str) -> bool:
        """Whether the name belongs to a metadata column of the scan."""
        return self._include_metadata and column in METADATA_COLUMNS


def _of_metadata(column: str, run: RowRun) -> Facts:
    if column == "_log":
        return _between("string", run.log.encode(), run.log.encode())
    if column == "_ledger":
        return _between("integer", run.ledger_id, run.ledger_id)
    if column == "_entry":
        return _between("integer", run.first_entry_id, run.last_entry_id)
    if column == "_offset":
        return _between("integer", run.first_offset, run.first_offset + run.rows - 1)
    return Facts()


def _between(family: str, low: int | bytes, high: int | bytes) -> Facts:
    return Facts(family, has_nulls=False, low=low, high=high)
