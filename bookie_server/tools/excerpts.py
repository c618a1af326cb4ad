"""The printed part of a long list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Consecutive rows of a list, and the key from which the list continues.

    Attributes:
        rows: The rows; their number does not exceed the limit.
        following: The key of the first row that is not in the excerpt; None at the end of the list.
    """

    rows: list[Row]
    following: int | None = None


def excerpt_of(rows: Iterable[tuple[int, Row]], start: int, limit: int) -> Excerpt:
    """Return the first `limit` rows whose keys are not below `start`.

    `rows` has pairs of key and row, in ascending order of keys. It is read only as far as needed.
    """
    kept: list[Row] = []
    for key, row in rows:
        if key < start:
            continue
        if len(kept) == limit:
            return Excerpt(kept, key)
        kept.append(row)
    return Excerpt(kept)
