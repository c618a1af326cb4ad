"""Reads the records of one sequence of a head that cover given keys, in two rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest, overlapping, select
from ledgerlog_spark.protocol.log.state.records import Paged, PageRef
from ledgerlog_spark.protocol.log.state.rows import REFS, RecordKind

T = TypeVar("T")


class Walk(Generic[T]):
    """Reads index pages, then pages: `wanted`, `feed`, until nothing is wanted.

    Attributes:
        refs: Every page of the range, oldest first; complete when nothing is wanted.
        loaded: Records of all pages and index pages that were read.
        is_cut: Whether it ends before the range does, because of `records_min`.
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

        With `records_min`, read only as many of the oldest pages as hold more records than
        this. The records of the head follow only after the last page.
        """
        self._kind = kind
        self._paged = paged
        self._first_key, self._end_key = first_key, end_key
        self._records_min = records_min
        self.is_cut = False
        self.loaded: Loaded = {}
        self.refs: list[PageRef] = []
        index = overlapping(paged.index, first_key, end_key)
        self._is_indexed = not index
        self._wanted = tuple(PageRequest(REFS, ref) for ref in index)
        if self._is_indexed:
            self._want_pages([])

    @property
    def wanted(self) -> tuple[PageRequest, ...]:
        """The pages to read next; empty when everything was read."""
        return self._wanted

    @property
    def is_indexed(self) -> bool:
        """Whether all index pages were read, so that `refs` is complete."""
        return self._is_indexed

    def feed(self, pages: Sequence[tuple[Any, ...]]) -> None:
        """Add the records of the wanted pages, in the order of `wanted`."""
        for wanted, page in zip(self._wanted, pages, strict=True):
            self.loaded[wanted.ref.token, wanted.ref.number] = page
        if not self._is_indexed:
            self._is_indexed = True
            self._want_pages([ref for page in pages for ref in page])
            return
        self._wanted = ()

    def records(self) -> tuple[T, ...]:
        """All records that cover keys of the range, in rising order of key."""
        assert not self._wanted, "pages are missing"
        everything: list[T] = []
        for ref in self.refs:
            everything += self.loaded[ref.token, ref.number]
        if not self.is_cut:
            everything += self._paged.recent
        return select(self._kind, everything, self._first_key, self._end_key)

    def _oldest(self, refs: list[PageRef]) -> list[PageRef]:
        """As few of the oldest pages as possible; some records of the first page may be dropped."""
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
        self._wanted = tuple(PageRequest(self._kind, ref) for ref in self.refs)
