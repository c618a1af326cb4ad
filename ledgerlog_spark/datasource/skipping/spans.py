"""Groups the needed entries of a range into pieces. A task reads each piece as one range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ledgerlog_spark.datasource.scan.ranges import OPEN_COST_BYTES

PIECES_MAX = 128
"""Maximum number of pieces of one range."""


def spans_of(places: Iterable[int], byte_edges: Sequence[int]) -> list[tuple[int, int]]:
    """Return half-open spans of places that contain all `places`, which are ascending.

    `byte_edges` contains the number of bytes before each place.

    A span also contains a gap between two needed entries if the entries of the gap cost no more
    than opening another piece. If there would be more than PIECES_MAX pieces, the spans also
    contain the smallest gaps.
    """
    spans: list[tuple[int, int]] = []
    for place in places:
        if spans and byte_edges[place] - byte_edges[spans[-1][1]] <= OPEN_COST_BYTES:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
    if len(spans) <= PIECES_MAX:
        return spans
    gaps = range(1, len(spans))
    widest = sorted(gaps, key=lambda gap: byte_edges[spans[gap - 1][1]] - byte_edges[spans[gap][0]])
    edges = [0, *sorted(widest[: PIECES_MAX - 1]), len(spans)]
    return [(spans[first][0], spans[end - 1][1]) for first, end in pairwise(edges)]
