"""Reads those records of a head's sequence that cover given keys, in at most two rounds of reads.

If there are index pages for these keys, the first round reads them. The last round reads pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest, overlapping, select
from ledgerlog_spark.protocol.log.state.records import Paged, PageRef
from ledgerlog_spark.protocol.log.state.rows import REFS, RecordKind

T = TypeVar("T")


class ListWalk(Generic[T]):
    """Determines the pages to read: first index pages, then pages.

    The caller reads the pages in `wanted`, and gives their records to `feed`.
    """

    def __init__(
        self,
        kind: RecordKind[T],
        paged: Paged[T],
        first_key: int,
        end_key: int,
        *,
        records_min: int | None = None,
    ) -> None:
        """Walk over the keys [first_key, end_key).

        If `records_min` is given, only the oldest pages are read, until these pages have more than
        `records_min` records together. The records of the head are included only if the last page
        is included.
        """
        self._kind = kind
        self._paged = paged
        self._first_key, self._end_key = first_key, end_key
        self._records_min = records_min
        self.is_cut = False  # the walk ends before the key `end_key`, because of `records_min`
        self.loaded: Loaded = {}  # all pages and index pages that were read
        self.refs: list[PageRef] = []  # the pages that contain records of the walk, oldest first
        index = overlapping(paged.index, first_key, end_key)
        self.is_indexed = not index  # all index pages were read, so `refs` is complete
        # the pages to read next; empty when all pages were read
        self.wanted = tuple(PageRequest(REFS, ref) for ref in index)
        if self.is_indexed:
            self._want_pages([])

    def feed(self, pages: Sequence[tuple[Any, ...]]) -> None:
        """Add the records of the wanted pages, in the order of `wanted`."""
        for wanted, page in zip(self.wanted, pages, strict=True):
            self.loaded[wanted.ref.token, wanted.ref.number] = page
        if not self.is_indexed:
            self.is_indexed = True
            self._want_pages([ref for page in pages for ref in page])
            return
        self.wanted = ()

    def records(self) -> tuple[T, ...]:
        """Return all records that cover keys of the walk, in ascending order of key."""
        assert not self.wanted, "pages are missing"
        everything: list[T] = []
        for ref in self.refs:
            everything += self.loaded[ref.token, ref.number]
        if not self.is_cut:
            everything += self._paged.recent
        return select(self._kind, everything, self._first_key, self._end_key)

    def _oldest(self, refs: list[PageRef]) -> list[PageRef]:
        """Return the oldest pages that have enough records.

        The records of the first page are not counted, because some of them may be dropped.
        """
        if self._records_min is None:
            return refs
        count = 0
        for place, ref in enumerate(refs[1:], 2):
            count += ref.count
            if count >= self._records_min and place < len(refs):
                self.is_cut = True
                return refs[:place]
        return refs

    def _want_pages(self, indexed: list[PageRef]) -> None:
        refs = (*indexed, *self._paged.pages)
        self.refs = self._oldest(overlapping(refs, self._first_key, self._end_key))
        self.wanted = tuple(PageRequest(self._kind, ref) for ref in self.refs)
