"""Finds the ranges and entries that may have one of the first rows of `ORDER BY x LIMIT n`.

The module uses the bounds and null counts of the parts that the scan reads completely, and reads no
rows. It finds a value such that at least n rows have this value or come before it in the sort
order. A row whose value comes after this value is not one of the first n rows. The query's further
sort orders do not change this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledgerlog_spark.datasource.skipping.facts import Facts


class Part(NamedTuple):
    """A part of a log, with the facts about the column of the `ORDER BY` in this part.

    `is_whole` is True if the scan reads all rows of the part.
    """

    facts: Facts
    rows: int
    is_whole: bool

    @property
    def nulls(self) -> int | None:
        """Number of nulls in the column, or None if this number is unknown."""
        if not self.facts.has_values:
            return self.rows
        return self.facts.null_count if self.facts.has_nulls else 0


@dataclass(frozen=True, slots=True)
class Top:
    """The column of the first sort order of a query, this order, and the limit of the query."""

    column: str
    is_descending: bool
    nulls_first: bool
    limit: int

    def needed(self, parts: Sequence[Part]) -> list[bool]:
        """Return whether each part may contain one of the first rows."""
        everything = [True] * len(parts)
        families = {part.facts.family for part in parts if part.facts.has_values}
        if "" in families or len(families) > 1:
            return everything
        wanted = self.limit
        if self.nulls_first:
            wanted -= sum(part.nulls or 0 for part in parts if part.is_whole)
            if wanted <= 0:
                return [part.facts.has_nulls for part in parts]
        latest = self._latest(parts, wanted)
        if latest is None:
            return everything
        (key,) = latest
        return [
            (self.nulls_first and part.facts.has_nulls)
            or (part.facts.has_values and not self._begins_after(part.facts, key))
            for part in parts
        ]

    def _latest(self, parts: Sequence[Part], wanted: int) -> tuple[Any] | None:
        """Find a value such that at least `wanted` values of the column equal it or come before it.

        The result is a tuple that contains only this value. It is None if the bounds do not
        determine such a value.
        """
        known = [
            (last, part.rows - part.nulls)
            for part in parts
            if part.is_whole
            and part.nulls is not None
            and (last := part.facts.low if self.is_descending else part.facts.high) is not None
        ]
        known.sort(key=lambda pair: pair[0], reverse=self.is_descending)
        for last, values in known:
            wanted -= values
            if wanted <= 0:
                return (last,)
        return None

    def _begins_after(self, facts: Facts, key: Any) -> bool:
        first = facts.high if self.is_descending else facts.low
        if first is None:
            return False
        return bool(first < key if self.is_descending else first > key)
