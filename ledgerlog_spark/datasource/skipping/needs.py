"""Finds the ranges and entries that a query needs, by its filters and the log's statistics.

`Needs` may keep rows that the query does not need, because Spark applies every filter and sort
order again. But `Needs` never leaves out a row that the result of the query contains. Each query
has its own `Needs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap

from ledgerlog_spark.datasource.scan.ranges import RangeIndex, ScanRange
from ledgerlog_spark.datasource.scan.slice_choice import FirstColumns, no_columns
from ledgerlog_spark.datasource.skipping.facts import Facts
from ledgerlog_spark.datasource.skipping.predicates import Predicate
from ledgerlog_spark.datasource.skipping.row_runs import (
    RowRun,
    StoredColumns,
    run_of_item,
    runs_of_entries,
)
from ledgerlog_spark.datasource.skipping.spans import spans_of
from ledgerlog_spark.datasource.skipping.top import Part, Top
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, LogSnapshot


@dataclass(frozen=True, slots=True)
class Listed:
    """A listed range, the part that a scan reads, and the index if the planner has read it."""

    snapshot: LogSnapshot
    item: Item
    scanned: ScanRange
    index: RangeIndex | None = None


class Needs:
    """Finds the rows that may pass all filters, or that may be among the first rows of `top`.

    Tasks may read `first_columns` first, and read the other columns only if a row of the entry may
    pass the filters. `top` must not be combined with filters: a filter may drop the rows that come
    first.
    """

    def __init__(
        self,
        filters: Sequence[Predicate] = (),
        *,
        top: Top | None = None,
        include_metadata: bool = False,
        first_columns: FirstColumns = no_columns,
    ) -> None:
        assert top is None or not filters, "filters may drop the first rows"
        self._filters = tuple(filters)
        self._top = top
        self._include_metadata = include_metadata
        self.first_columns = first_columns
        self._stored: dict[tuple[str, int], StoredColumns | None] = {}
        columns = {column for each in filters for column in each.columns}
        self._columns = columns | ({top.column} if top is not None else set())

    def ranges(self, listed: Sequence[Listed]) -> list[bool]:
        """Return whether each range may contain a needed row, according to its statistics."""
        if not self._filters and self._top is None:
            return [True] * len(listed)
        runs = [(each, run_of_item(each.snapshot.name, each.item)) for each in listed]
        passing = list(starmap(self._may_pass, runs))
        first = self._first(runs)
        return [one and other for one, other in zip(passing, first, strict=True)]

    def needs_index(self, listed: Listed) -> bool:
        """Whether the index of a listed range may show that some of its entries are not needed."""
        stored = self._stored_columns(listed)
        return (
            stored is not None
            and listed.item.has_index
            and any(map(stored.has_bounds, self._columns))
        )

    def pieces(self, listed: Sequence[Listed]) -> list[list[ScanRange]]:
        """Return a list for each range: the pieces of the range that contain its needed rows.

        A range without an index is one piece.
        """
        runs = [
            [(place, run) for place, run in self._runs(each) if self._may_pass(each, run)]
            for each in listed
        ]
        flat = [(each, run) for each, some in zip(listed, runs, strict=True) for _, run in some]
        first = iter(self._first(flat))
        found = []
        for each, some in zip(listed, runs, strict=True):
            places = [place for place, _ in some if next(first)]
            if each.index is None or self._stored_columns(each) is None:
                found.append([each.scanned] if places else [])
                continue
            spans = spans_of(places, each.index.byte_edges)
            found.append([each.index.part(each.scanned, *span) for span in spans])
        return found

    def _runs(self, listed: Listed) -> Iterator[tuple[int, RowRun]]:
        """Yield the place and the rows of each entry of a range, with their statistics.

        If the range has no index, or its statistics cannot exclude rows, yield the whole range.
        """
        if listed.index is None or self._stored_columns(listed) is None:
            yield 0, run_of_item(listed.snapshot.name, listed.item)
        else:
            yield from runs_of_entries(listed.scanned, listed.index)

    def _may_pass(self, listed: Listed, run: RowRun) -> bool:
        stored = self._stored_columns(listed) if self._filters else None
        if stored is None:
            return True
        facts = stored.facts(run)
        return all(each.may_pass(facts) for each in self._filters)

    def _first(self, runs: Sequence[tuple[Listed, RowRun]]) -> list[bool]:
        """Return whether each run may have one of the first rows in the query's order."""
        if self._top is None:
            return [True] * len(runs)
        parts = []
        for listed, run in runs:
            stored, scanned = self._stored_columns(listed), listed.scanned
            facts = Facts() if stored is None else stored.facts(run)(self._top.column)
            starts_within = scanned.start_offset <= run.first_offset
            ends_within = run.first_offset + run.rows <= scanned.end_offset
            parts.append(Part(facts, run.rows, starts_within and ends_within))
        return self._top.needed(parts)

    def _stored_columns(self, listed: Listed) -> StoredColumns | None:
        """Return the columns in the stored rows of a range.

        The result is None if statistics cannot exclude rows of the range.
        """
        snapshot, schema_id = listed.snapshot, listed.item.schema_id
        if not self._columns or snapshot.kind is LogKind.LEADER:
            return None
        key = snapshot.name, schema_id
        if key not in self._stored:
            schema = snapshot.schemas.get(schema_id)
            self._stored[key] = (
                None
                if schema is None
                else StoredColumns(schema, include_metadata=self._include_metadata)
            )
        return self._stored[key]
