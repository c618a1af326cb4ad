"""Stores consecutive entries as columns, which a reader's machine passes to its consumers.

Creating an object for each entry takes more time than checking the digest of the entry, and the
garbage collector visits every such object. So an entry object is created only when the entry is
accessed. Before that, only columns are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import overload

from ledgerlog_spark.protocol.ledger.messages import Payload, StoredEntry


class EntryBatch(Sequence[StoredEntry]):
    """One or more entries with consecutive ids. The host has verified all entries."""

    __slots__ = ("first_entry_id", "last_adds_confirmed", "lengths", "payloads", "size_bytes")

    def __init__(
        self,
        first_entry_id: int,
        last_adds_confirmed: tuple[int, ...],
        lengths: tuple[int, ...],
        payloads: tuple[Payload, ...],
    ) -> None:
        assert payloads, "a batch has at least one entry"
        self.first_entry_id = first_entry_id
        self.last_adds_confirmed = last_adds_confirmed  # for each entry, the LAC in its header
        self.lengths = lengths  # for each entry, the ledger's length in its header
        self.payloads = payloads
        self.size_bytes = sum(map(len, payloads))  # total size of the payloads

    @classmethod
    def of(cls, entries: Sequence[StoredEntry]) -> EntryBatch:
        """Return a batch of `entries`, which must have consecutive ids."""
        if isinstance(entries, cls):
            return entries
        _, confirmed, lengths, payloads = zip(*entries, strict=True)
        return cls(entries[0].entry_id, confirmed, lengths, payloads)

    @classmethod
    def joined(cls, batches: Sequence[EntryBatch]) -> EntryBatch:
        """Join `batches`, which must follow each other without gaps, to one batch."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            batches[0].first_entry_id,
            tuple(chain.from_iterable(one.last_adds_confirmed for one in batches)),
            tuple(chain.from_iterable(one.lengths for one in batches)),
            tuple(chain.from_iterable(one.payloads for one in batches)),
        )

    @property
    def last_entry_id(self) -> int:
        """The id of the last entry."""
        return self.first_entry_id + len(self.payloads) - 1

    def between(self, first_entry_id: int, last_entry_id: int) -> EntryBatch | None:
        """Return the batch's entries in a range (both ends inclusive); None if there are none."""
        begin = max(0, first_entry_id - self.first_entry_id)
        end = min(len(self.payloads), last_entry_id + 1 - self.first_entry_id)
        if begin >= end:
            return None
        if end - begin == len(self.payloads):
            return self
        return EntryBatch(
            self.first_entry_id + begin,
            self.last_adds_confirmed[begin:end],
            self.lengths[begin:end],
            self.payloads[begin:end],
        )

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[StoredEntry]:
        ids = range(self.first_entry_id, self.first_entry_id + len(self.payloads))
        columns = zip(ids, self.last_adds_confirmed, self.lengths, self.payloads, strict=True)
        # `tuple.__new__` takes a third of the time of `StoredEntry(...)`.
        return map(tuple.__new__, repeat(StoredEntry), columns)

    @overload
    def __getitem__(self, place: int) -> StoredEntry: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[StoredEntry, ...]: ...

    def __getitem__(self, place: int | slice) -> StoredEntry | tuple[StoredEntry, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        entry_id = range(self.first_entry_id, self.first_entry_id + len(self.payloads))[place]
        return StoredEntry(
            entry_id, self.last_adds_confirmed[place], self.lengths[place], self.payloads[place]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EntryBatch({list(self)!r})"
