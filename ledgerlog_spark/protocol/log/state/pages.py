"""Divides the sequences of a log into records in the head and records in pages (LOGS.md#G2).

A sequence grows at its end. New records go to the head while they fit there. When they do not fit,
all records of the head are *spilled* into pages. If the last page has room for these records, a new
page replaces the last page, and contains its records and the records of the head. Otherwise the
records of the head go into new pages. When the head names too many pages, an index page names all
of them except the last. If the last index page has room for these names, a new index page replaces
it, and contains its names and the new names. So a commit of one range usually writes only the head.
About every fiftieth commit also writes one page. A full page is never rewritten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ledgerlog_spark.protocol.log.state.codec import encode_page
from ledgerlog_spark.protocol.log.state.records import PAGE_SIZE_BYTES_MAX, Paged, PageRef
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, REFS, SCHEMAS, RecordKind

T = TypeVar("T")

PAGE_BODY_SIZE_BYTES_MAX = PAGE_SIZE_BYTES_MAX - 64
"""Maximum size of the records of a page before compression, without the envelope and the count."""


@dataclass(frozen=True, slots=True)
class HeadShare:
    """The part of the head that one sequence may use."""

    recent_size_bytes_max: int  # maximum size of the records in the head itself
    pages_max: int  # maximum number of references to pages that no index page names


SHARES: Mapping[str, HeadShare] = {
    ITEMS.name: HeadShare(recent_size_bytes_max=4_096, pages_max=40),
    HISTORY.name: HeadShare(recent_size_bytes_max=3_072, pages_max=24),
    SCHEMAS.name: HeadShare(recent_size_bytes_max=2_048, pages_max=12),
}
"""The part of the head for each sequence. With these limits, the head stays below 16 KiB before
compression, including the properties (up to 2 KiB) and the names."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to read, and the kind of its records."""

    kind: RecordKind[Any]
    ref: PageRef


Loaded = dict[tuple[str, int], tuple[Any, ...]]
"""Records of the pages that were read, by the token and the number of the page."""


class PageWriter:
    """Numbers and encodes the pages of one attempt."""

    __slots__ = ("pages", "token")

    def __init__(self, token: str) -> None:
        self.token = token
        self.pages: list[bytes] = []

    def write(self, kind: RecordKind[T], records: Sequence[T]) -> PageRef:
        """Add a page with these records, and return a reference to the page.

        There is at least one record.
        """
        number = len(self.pages)
        self.pages.append(encode_page(kind, records))
        is_index = kind is REFS
        return PageRef(
            token=self.token,
            number=number,
            first_key=kind.first_key(records[0]),
            end_key=kind.end_key(records[-1]),
            count=sum(getattr(ref, "count", 0) for ref in records) if is_index else len(records),
            size_bytes=kind.size_bytes(records),
        )


def pages_to_merge(kind: RecordKind[T], paged: Paged[T], new: Sequence[T]) -> list[PageRequest]:
    """Return the pages whose records `append` needs. There are at most two such pages."""
    share = SHARES[kind.name]
    spilled = (*paged.recent, *new)
    size_bytes = kind.size_bytes(spilled)
    if not new or size_bytes <= share.recent_size_bytes_max:
        return []
    wanted = []
    merges_page = bool(paged.pages) and _fits(paged.pages[-1], size_bytes)
    if merges_page:
        wanted.append(PageRequest(kind, paged.pages[-1]))
    written = 1 if merges_page else sum(1 for _ in chunks(kind, spilled))
    pages_after = len(paged.pages) - merges_page + written
    if pages_after > share.pages_max and paged.index:
        moved_size_bytes = REFS.size_bytes(paged.pages) + written * REFS.size_bytes(paged.index[:1])
        if _fits(paged.index[-1], moved_size_bytes):
            wanted.append(PageRequest(REFS, paged.index[-1]))
    return wanted


def append(
    kind: RecordKind[T], paged: Paged[T], new: Sequence[T], writer: PageWriter, loaded: Loaded
) -> Paged[T]:
    """Return the sequence with the records `new` at its end. Add new pages to `writer`.

    `new` is in ascending order of key. `loaded` contains the records of all `pages_to_merge`.
    """
    share = SHARES[kind.name]
    recent = (*paged.recent, *new)
    size_bytes = kind.size_bytes(recent)
    if not new or size_bytes <= share.recent_size_bytes_max:
        return replace(paged, recent=recent)
    kept = paged.pages
    if kept and _fits(kept[-1], size_bytes):
        recent = (*loaded[kept[-1].token, kept[-1].number], *recent)
        kept = kept[:-1]
    pages = (*kept, *(writer.write(kind, chunk) for chunk in chunks(kind, recent)))
    if len(pages) <= share.pages_max:
        return Paged(paged.index, pages)
    moved, index = pages[:-1], paged.index
    if index:
        last = loaded.get((index[-1].token, index[-1].number))
        if last is not None and _fits(index[-1], REFS.size_bytes(moved)):
            moved, index = (*last, *moved), index[:-1]
    index = (*index, *(writer.write(REFS, chunk) for chunk in chunks(REFS, moved)))
    return Paged(index, pages[-1:])


def drop_before(kind: RecordKind[T], paged: Paged[T], key: int) -> Paged[T]:
    """Return the sequence without the records that end at or before `key`.

    A page is dropped only if all its records end at or before `key`.
    """
    return Paged(
        tuple(ref for ref in paged.index if ref.end_key > key),
        tuple(ref for ref in paged.pages if ref.end_key > key),
        tuple(record for record in paged.recent if kind.end_key(record) > key),
    )


def end_key(kind: RecordKind[T], paged: Paged[T]) -> int:
    """Return the key after the last record of the sequence; 0 if the sequence is empty."""
    if paged.recent:
        return kind.end_key(paged.recent[-1])
    refs = paged.pages or paged.index
    return refs[-1].end_key if refs else 0


def overlapping(refs: Iterable[PageRef], first_key: int, end_key: int) -> list[PageRef]:
    """Return the references to the pages that have keys in [first_key, end_key)."""
    return [ref for ref in refs if ref.first_key < end_key and ref.end_key > first_key]


def select(
    kind: RecordKind[T], records: Sequence[T], first_key: int, end_key: int
) -> tuple[T, ...]:
    """Return the records that cover keys in [first_key, end_key), in ascending order."""
    if first_key >= end_key:
        return ()  # an empty version has no records, even if its offset is inside a range
    first = bisect_right(records, first_key, key=kind.end_key)
    end = bisect_left(records, end_key, key=kind.first_key)
    return tuple(records[first:end])


def _fits(ref: PageRef, size_bytes: int) -> bool:
    return ref.size_bytes + size_bytes <= PAGE_BODY_SIZE_BYTES_MAX


def chunks(kind: RecordKind[T], records: Sequence[T]) -> Iterable[Sequence[T]]:
    """Divide the records among as few pages as possible."""
    first = size_bytes = 0
    for place, added in enumerate(kind.sizes_bytes(records)):
        if place > first and size_bytes + added > PAGE_BODY_SIZE_BYTES_MAX:
            yield records[first:place]
            first, size_bytes = place, 0
        size_bytes += added
    if records:
        yield records[first:]


def replace_run(
    kind: RecordKind[T],
    paged: Paged[T],
    run: Sequence[T],
    by: Sequence[T],
    writer: PageWriter,
    loaded: Loaded,
) -> Paged[T]:
    """Return the sequence with the records `by` in place of the records `run` (LOGS.md#U13).

    Pages never change. New pages replace the pages that contain a part of the run. New index pages
    replace the index pages that name these pages. If the new records and the records of the page
    before them fit into one page, they are stored in one page. So merging also reduces the number
    of pages.

    `by` contains at least one record, and covers the same keys as the run. `loaded` contains the
    records of all pages and index pages with retained keys. The new pages are added to `writer`.
    """
    first_key, end_key = kind.first_key(run[0]), kind.end_key(run[-1])
    index = overlapping(paged.index, first_key, end_key)
    place = paged.index.index(index[0]) if index else len(paged.index)
    indexed = [ref for above in index for ref in loaded[above.token, above.number]]
    refs = [*indexed, *paged.pages]
    old = overlapping(refs, first_key, end_key)
    if not old:
        return Paged(paged.index, paged.pages, _without(kind, paged.recent, first_key, end_key, by))
    recent = _without(kind, paged.recent, first_key, end_key, ())
    at = refs.index(old[0])
    records = [record for ref in old for record in loaded[ref.token, ref.number]]
    records = list(_without(kind, records, first_key, end_key, by))
    before = refs[at - 1] if at > 0 else None
    is_read = before is not None and (before.token, before.number) in loaded
    if before is not None and is_read and _fits(before, kind.size_bytes(records)):
        records = [*loaded[before.token, before.number], *records]
        at, old = at - 1, [before, *old]
    new = [writer.write(kind, chunk) for chunk in chunks(kind, records)]
    refs[at : at + len(old)] = new
    above, behind = paged.index[:place], paged.index[place + len(index) :]
    is_short = not above and not behind and len(refs) <= SHARES[kind.name].pages_max
    if is_short or not index:
        return Paged((*above, *behind), tuple(refs), recent)
    moved = len(refs) - sum(ref not in old for ref in paged.pages)  # unchanged pages stay
    rewritten = (writer.write(REFS, chunk) for chunk in chunks(REFS, refs[:moved]))
    return Paged((*above, *rewritten, *behind), tuple(refs[moved:]), recent)


def _without(
    kind: RecordKind[T], records: Sequence[T], first_key: int, end_key: int, by: Sequence[T]
) -> tuple[T, ...]:
    """Replace the records in [first_key, end_key) with `by`, and return all records."""
    before = (record for record in records if kind.end_key(record) <= first_key)
    behind = (record for record in records if kind.first_key(record) >= end_key)
    return (*before, *by, *behind)
