"""Stretches of consecutive entry ids, in little memory: a ledger may have many of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

RANGES_MAX: Final = 1 << 20
"""Maximum number of ranges in one list of entries, unless the caller has room for fewer."""


class Spans:
    """First and last ids (inclusive) of maximal stretches, in ascending order: 16 bytes each."""

    __slots__ = ("_ids",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._ids = array("q")
        self.extend(spans)

    def extend(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add spans in ascending order that begin after the present ones."""
        ids = self._ids
        for first, last in spans:
            if ids and first <= ids[-1] + 1:
                ids[-1] = max(ids[-1], last)
            else:
                ids.append(first)
                ids.append(last)

    @property
    def last_id(self) -> int:
        """The largest id; -1 if empty."""
        return self._ids[-1] if self._ids else -1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        ids = iter(self._ids)
        return zip(ids, ids, strict=True)

    def __len__(self) -> int:
        return len(self._ids) // 2
