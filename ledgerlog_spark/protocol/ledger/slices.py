"""The parts of entries that a reader needs, if it does not need whole entries (PROTOCOL.md#E13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ledgerlog_spark.model import SLICE_RANGES_MAX, SLICED_ENTRIES_MAX

Payload = bytes | bytearray | memoryview

_HEAD_SIZE_BYTES = 36
_ENTRY_HEAD_SIZE_BYTES = 4


@runtime_checkable
class SliceSource(Protocol):
    """Determines the wanted ranges of bytes of each entry, and checks the received bytes."""

    def ranges_of(self, entry_id: int) -> Sequence[tuple[int, int]]:
        """Return the wanted ranges of an entry: the offset in the payload and the length of each.

        There is at least one range. The offsets rise, and the ranges do not overlap.
        """

    def payload_of(self, entry_id: int, data: Payload) -> Payload | None:
        """Make a payload from `data`, the bytes of all ranges; None if `data` is not valid."""

    def note_given_up(self, count: int) -> None:
        """Count the requests for slices after which whole entries were read.

        The read handle calls this once at the end of a read, with 0 if the read got all slices.
        """


def last_fitting(
    slices: SliceSource, first_entry_id: int, last_entry_id: int, size_bytes_max: int
) -> int:
    """Return the last entry up to which the slices fit into one request and one answer.

    The result is at least `first_entry_id`, even if the slices of this entry do not fit.
    """
    size_bytes, ranges_left = _HEAD_SIZE_BYTES, SLICE_RANGES_MAX
    last_entry_id = min(last_entry_id, first_entry_id + SLICED_ENTRIES_MAX - 1)
    for entry_id in range(first_entry_id, last_entry_id + 1):
        ranges = slices.ranges_of(entry_id)
        size_bytes += _ENTRY_HEAD_SIZE_BYTES + sum(length for _, length in ranges)
        ranges_left -= len(ranges)
        if entry_id > first_entry_id and (size_bytes > size_bytes_max or ranges_left < 0):
            return entry_id - 1
    return last_entry_id
