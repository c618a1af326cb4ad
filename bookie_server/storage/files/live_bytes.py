"""The live bytes of each ledger in a file, in arrays, because a file may have a million ledgers."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

DROPPED = -1


class LiveBytes:
    """The ledgers of a file that are not dropped, and the sizes of their entries in this file.

    Each ledger takes 16 bytes. A dropped ledger keeps its place until the file is freed.
    """

    __slots__ = ("_count", "_ids", "_sizes")

    def __init__(self) -> None:
        self._ids = array("q")
        self._sizes = array("q")
        self._count = 0

    def extend(self, ledger_ids: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        """Add ledgers. All ledgers must be added in ascending order of their ids."""
        assert not self._ids or not ledger_ids or self._ids[-1] < ledger_ids[0]
        self._ids.extend(ledger_ids)
        self._sizes.extend(sizes_bytes)
        self._count += len(ledger_ids)

    def pop(self, ledger_id: int) -> int:
        """Remove a ledger, and return the size of its entries; 0 if it is not in the file."""
        place = self._place_of(ledger_id)
        if place < 0:
            return 0
        size_bytes, self._sizes[place] = self._sizes[place], DROPPED
        self._count -= 1
        return size_bytes

    def size_of(self, ledger_id: int) -> int:
        """Return the size of a ledger's entries; `DROPPED` if it is dropped or not in the file."""
        place = self._place_of(ledger_id)
        return DROPPED if place < 0 else self._sizes[place]

    def __contains__(self, ledger_id: int) -> bool:
        return self._place_of(ledger_id) >= 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids in ascending order."""
        sizes = self._sizes
        return (each for place, each in enumerate(self._ids) if sizes[place] != DROPPED)

    def total(self) -> int:
        """Return the size of the entries of all ledgers that are not dropped."""
        return sum(size_bytes for size_bytes in self._sizes if size_bytes != DROPPED)

    def _place_of(self, ledger_id: int) -> int:
        place = bisect_left(self._ids, ledger_id)
        if place == len(self._ids) or self._ids[place] != ledger_id:
            return -1
        return -1 if self._sizes[place] == DROPPED else place
