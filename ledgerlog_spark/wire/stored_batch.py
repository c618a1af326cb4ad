"""Stored entries that were received together, in one piece of memory.

Small entries are read in batches, and a Python loop over all entries of a batch would be slow. If
the entries have the same size, as in most ledgers, one call of `struct` divides the whole batch
into entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import overload

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.digests import Buffer

_LENGTH = Struct(">i")

LENGTH_SIZE_BYTES = _LENGTH.size
"""Size of the length field before each entry."""


class StoredBatch(Sequence[bytes]):
    """A sequence of stored entries, which are not verified. Each access to an entry copies it.

    Layout: { length i32 | stored entry } *
    """

    __slots__ = ("_body", "_lengths", "_one_length", "_starts")

    def __init__(self, body: memoryview) -> None:
        """Make a sequence of the entries in `body`. The sequence may keep the memory of `body`."""
        self._body: Buffer = body
        self._lengths: Sequence[int]
        self._starts: Sequence[int]
        self._one_length = _one_length(body)
        if self._one_length is not None:
            step = LENGTH_SIZE_BYTES + self._one_length
            self._starts = range(LENGTH_SIZE_BYTES, len(body) + 1, step)
            self._lengths = (self._one_length,) * len(self._starts)
        else:
            self._starts, self._lengths = _walk(body)
            self._body = bytes(body)  # a copy, because each slice of a view creates one more object

    @classmethod
    def of(cls, entries: Iterable[Buffer]) -> StoredBatch:
        """Return a batch with copies of `entries` in one piece of memory."""
        pieces: list[Buffer] = []
        for entry in entries:
            pieces += (_LENGTH.pack(len(entry)), entry)
        return cls(memoryview(b"".join(pieces)))

    @property
    def size_bytes_min(self) -> int:
        """Size of the smallest entry; 0 if the batch has no entry."""
        return min(self._lengths, default=0)

    def cut(self, *sizes: int) -> tuple[tuple[bytes, ...], ...]:
        """Divide each entry into parts of `sizes` bytes, and a last part with all further bytes.

        The result has one tuple for each part. The tuple contains this part of every entry.
        """
        if self._one_length is not None:
            sizes = (*sizes, self._one_length - sum(sizes))
            parts = _layout(sizes, len(self._starts)).unpack(self._body)
            return tuple(parts[place :: len(sizes)] for place in range(len(sizes)))
        body = bytes(self._body)
        columns: list[tuple[bytes, ...]] = []
        at = 0
        for size in sizes:
            end = at + size
            columns.append(tuple([body[start + at : start + end] for start in self._starts]))
            at = end
        ends = map(int.__add__, self._starts, self._lengths)
        rest = [body[start + at : end] for start, end in zip(self._starts, ends, strict=True)]
        return (*columns, tuple(rest))

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[bytes, ...]: ...

    def __getitem__(self, place: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        start = self._starts[place]
        return bytes(self._body[start : start + self._lengths[place]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StoredBatch({tuple(self)!r})"


@lru_cache(maxsize=8)
def _layout(sizes: tuple[int, ...], count: int) -> Struct:
    """Return the layout of `count` entries: for each, a length field and parts of `sizes` bytes."""
    parts = "".join(f"{size}s" for size in sizes)
    return Struct(f"{LENGTH_SIZE_BYTES}x{parts}" * count)


def _one_length(body: memoryview) -> int | None:
    """Return the common length of all entries; None if it differs or the last is incomplete."""
    if len(body) < LENGTH_SIZE_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(body)
    if length < 0 or len(body) % (LENGTH_SIZE_BYTES + length):
        return None
    found = list(Struct(f">i{length}x").iter_unpack(body))
    return length if found.count((length,)) == len(found) else None


def _walk(body: memoryview) -> tuple[list[int], list[int]]:
    starts: list[int] = []
    lengths: list[int] = []
    at, end, unpack = 0, len(body), _LENGTH.unpack_from
    while at < end:
        if end - at < LENGTH_SIZE_BYTES:
            raise WireFormatError(f"a batch has {end - at} bytes after its last entry")
        (length,) = unpack(body, at)
        at += LENGTH_SIZE_BYTES
        if not 0 <= length <= end - at:
            raise WireFormatError(
                f"an entry of a batch has {length} bytes, but {end - at} bytes are left",
                size_bytes=length,
            )
        starts.append(at)
        lengths.append(length)
        at += length
    return starts, lengths
