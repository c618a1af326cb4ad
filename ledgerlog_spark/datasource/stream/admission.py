"""Decides how many of the unread rows one micro-batch takes.

The functions are pure. A batch takes at most `maxRowsPerTrigger` rows and `maxBytesPerTrigger`
bytes. All rows of a range are assumed to have the same size. If the limit of bytes is smaller than
an entry, a batch takes about one entry, so that the stream makes progress. Several logs share a
limit evenly. If a log does not use its whole share, the other logs get the remaining part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ledgerlog_spark.protocol.log.state.records import Item


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one micro-batch. If an attribute is None, this number is not limited."""

    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The rows of one log that a batch may take, from `first_offset` to before `end_offset`."""

    log: str
    first_offset: int
    end_offset: int
    items: Sequence[Item]  # the ranges that contain these rows, sorted by offset, without gaps
    waiting_since_ms: int = 0  # time when the first row was committed, or 0 if this time is unknown

    @property
    def rows(self) -> int:
        """Number of waiting rows."""
        return self.end_offset - self.first_offset

    @property
    def size_bytes(self) -> int:
        """Number of payload bytes of the waiting rows."""
        return self.size_bytes_to(self.end_offset)

    def size_bytes_to(self, end_offset: int) -> int:
        """Return the number of payload bytes of the waiting rows before `end_offset`."""
        return _size_before(self.items, end_offset) - _size_before(self.items, self.first_offset)

    def offset_within(self, size_bytes: int, end_offset: int) -> int:
        """Return the largest offset such that the rows before it have at most `size_bytes` bytes.

        The rows are counted from `first_offset`. The result is at most `end_offset`.
        """
        most = _size_before(self.items, self.first_offset) + size_bytes
        before = 0
        for item in self.items:
            if item.first_offset >= end_offset:
                break
            if before + item.size_bytes > most:
                rows = ((most - before + 1) * item.rows - 1) // item.size_bytes
                return max(self.first_offset, min(end_offset, item.first_offset + rows))
            before += item.size_bytes
        return end_offset

    @property
    def entry_end_offset(self) -> int:
        """The offset after about one entry of rows. It is exact if the range has only one entry."""
        place = bisect_right(self.items, self.first_offset, key=lambda item: item.end_offset)
        item = self.items[place]
        entries = item.last_entry_id - item.first_entry_id + 1 - item.has_index
        rows = -(-item.rows // max(1, entries))
        return min(self.end_offset, item.end_offset, self.first_offset + rows)


def admitted(backlogs: Sequence[Backlog], limits: Limits) -> dict[str, int]:
    """Return the offset after the batch's last row in each log, by log name."""
    waiting = [backlog for backlog in backlogs if backlog.rows > 0]
    wanted = [backlog.rows for backlog in waiting]
    shares = wanted if limits.rows is None else even_shares(wanted, limits.rows)
    ends = {b.log: b.first_offset + rows for b, rows in zip(waiting, shares, strict=True)}
    if limits.size_bytes is not None:
        allowed = dict(ends)
        ends = _within_bytes(waiting, ends, limits.size_bytes)
        _admit_an_entry(waiting, ends, allowed)
    return {backlog.log: ends.get(backlog.log, backlog.first_offset) for backlog in backlogs}


def even_shares(wanted: Sequence[int], total: int) -> list[int]:
    """Divide `total` as evenly as possible. No part is larger than the number in `wanted`.

    The sum of the parts is `total` or less. If two parts are both smaller than their numbers in
    `wanted`, they differ by at most one.
    """
    shares = [0] * len(wanted)
    by_want = sorted(range(len(wanted)), key=lambda place: wanted[place])
    for number, place in enumerate(by_want):
        shares[place] = min(wanted[place], total // (len(wanted) - number))
        total -= shares[place]
    return shares


def _within_bytes(
    waiting: Sequence[Backlog], ends: dict[str, int], size_bytes_max: int
) -> dict[str, int]:
    wanted = [backlog.size_bytes_to(ends[backlog.log]) for backlog in waiting]
    shares = even_shares(wanted, size_bytes_max)
    return {
        b.log: b.offset_within(size, ends[b.log]) for b, size in zip(waiting, shares, strict=True)
    }


def _admit_an_entry(
    waiting: Sequence[Backlog], ends: dict[str, int], allowed: dict[str, int]
) -> None:
    """If all shares together are less than an entry, take an entry of the log that waited longest.

    The function considers only logs of which the limit of rows allows at least one row. If this
    limit is one row, it considers only one log. The batch takes the whole entry. Tasks always read
    complete entries, so two batches that share an entry would both read it.
    """
    able = [backlog for backlog in waiting if allowed[backlog.log] > backlog.first_offset]
    if not able:
        return
    longest = min(able, key=lambda backlog: (backlog.waiting_since_ms, backlog.log))
    entry_end = min(longest.entry_end_offset, allowed[longest.log])
    taken = sum(backlog.size_bytes_to(ends[backlog.log]) for backlog in waiting)
    is_nothing = all(ends[backlog.log] == backlog.first_offset for backlog in waiting)
    if is_nothing or taken < longest.size_bytes_to(entry_end):
        ends[longest.log] = max(ends[longest.log], entry_end)


def _size_before(items: Sequence[Item], offset: int) -> int:
    """Return the number of payload bytes from the start of the first item to `offset`."""
    size_bytes = 0
    for item in items:
        if item.end_offset > offset:
            rows = max(0, offset - item.first_offset)
            return size_bytes + item.size_bytes * rows // item.rows
        size_bytes += item.size_bytes
    return size_bytes
