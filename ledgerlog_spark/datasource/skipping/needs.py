"""Which ranges and entries a query needs, by its filters and the statistics of the log.

Spark applies every filter again, so `Needs` may keep too much. It never leaves out a row that
passes. Each query has an object of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from ledgerlog_spark.datasource.scan.ranges import RangeIndex, ScanRange
from ledgerlog_spark.datasource.skipping.predicates import Predicate
from ledgerlog_spark.datasource.skipping.row_runs import (
    RowRun,
    StoredColumns,
    run_of_item,
    runs_of_entries,
)
from ledgerlog_spark.datasource.skipping.spans import spans_of
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, LogSnapshot


class Needs:
    """The filters of a query: a row is needed if it passes all of them."""

    def __init__(
        self, filters: Sequence[Predicate] = (), *, include_metadata: bool = False
    ) -> None:
        self._filters = tuple(filters)
        self._include_metadata = include_metadata
        self._stored: dict[tuple[str, int], StoredColumns | None] = {}

    def needs_range(self, snapshot: LogSnapshot, item: Item) -> bool:
        """Whether a row of a listed range may be needed, by the statistics in the list."""
        stored = self._stored_columns(snapshot, item)
        return stored is None or self._may_pass(stored, run_of_item(snapshot.name, item))

    def needs_index(self, snapshot: LogSnapshot, item: Item) -> bool:
        """Whether the index of a listed range may show that some of its entries are not needed."""
        stored = self._stored_columns(snapshot, item)
        return (
            stored is not None
            and item.has_index
            and any(stored.has_bounds(name) for each in self._filters for name in each.columns)
        )

    def pieces(
        self, snapshot: LogSnapshot, item: Item, scanned: ScanRange, index: RangeIndex | None
    ) -> list[ScanRange]:
        """The pieces of `scanned` with all needed rows. Without an index, all of it is needed."""
        stored = self._stored_columns(snapshot, item)
        if stored is None or index is None:
            return [scanned]
        runs = runs_of_entries(scanned, index)
        places = [place for place, run in runs if self._may_pass(stored, run)]
        spans = spans_of(places, index.byte_edges)
        return list(starmap(lambda first, end: index.part(scanned, first, end), spans))

    def _may_pass(self, stored: StoredColumns, run: RowRun) -> bool:
        facts = stored.facts(run)
        return all(each.may_pass(facts) for each in self._filters)

    def _stored_columns(self, snapshot: LogSnapshot, item: Item) -> StoredColumns | None:
        """The columns of a range's rows; None if there are no filters, or no statistics."""
        if not self._filters or snapshot.kind is LogKind.LEADER:
            return None
        key = snapshot.name, item.schema_id
        if key not in self._stored:
            schema = snapshot.schemas.get(item.schema_id)
            self._stored[key] = (
                None
                if schema is None
                else StoredColumns(schema, include_metadata=self._include_metadata)
            )
        return self._stored[key]
