"""Stretches of consecutive entry ids in little memory, because a ledger may have many stretches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

RANGES_MAX: Final = 1 << 20
"""Maximum number of ranges in one list of entries. A caller may set a smaller maximum."""


class Spans:
    """The first and last ids (inclusive) of stretches, in ascending order.

    A stretch takes 16 bytes.
    """

    __slots__ = ("_ids",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._ids = array("q")
        self.extend(spans)

    def extend(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add spans. They must be in ascending order and begin after the spans that exist."""
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
