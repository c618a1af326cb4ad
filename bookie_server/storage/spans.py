"""Ranges of consecutive entry ids, in an array, because a ledger may have many ranges."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class Spans:
    """Stretches of consecutive entry ids, in ascending order.

    The array contains the first and the last id of each stretch. A stretch takes 16 bytes.
    """

    __slots__ = ("_ids",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._ids = array("q")
        self.extend(spans)

    def extend(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add stretches in ascending order; none may begin before the last existing stretch.

        Stretches that overlap, or that have no id between them, become one stretch.
        """
        ids = self._ids
        for first, last in spans:
            if ids and first <= ids[-1] + 1:
                ids[-1] = max(ids[-1], last)
            else:
                ids.append(first)
                ids.append(last)

    @property
    def last_id(self) -> int:
        """The largest id, or -1 if there are no stretches."""
        return self._ids[-1] if self._ids else -1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        ids = iter(self._ids)
        return zip(ids, ids, strict=True)

    def __len__(self) -> int:
        return len(self._ids) // 2
