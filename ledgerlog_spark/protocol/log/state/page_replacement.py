"""Other records in place of a run of a paged sequence (LOGS.md#G2, LOGS.md#U13).

Pages are never changed: those that hold part of the run are written again without it, as few as it
takes, and so are the index pages that name them. What the run leaves of a page joins the page
before when both fit into one, so that merging also makes pages fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageWriter, chunks, overlapping
from ledgerlog_spark.protocol.log.state.records import Paged, PageRef
from ledgerlog_spark.protocol.log.state.rows import REFS, RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def replace_run(
    kind: RecordKind[T],
    paged: Paged[T],
    run: Sequence[T],
    by: Sequence[T],
    writer: PageWriter,
    loaded: Loaded,
) -> Paged[T]:
    """The sequence with `by` in place of `run`; pages that this takes are added to `writer`.

    Args:
        kind: Of the records.
        paged: The sequence as the head has it.
        run: Records of it one behind the other, at least one.
        by: At least one record; together they cover the keys that the run covered.
        writer: Takes the pages.
        loaded: Records of all pages and index pages of the sequence that hold retained keys.
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
    if at > 0 and _joins(kind, refs[at - 1], records, loaded):
        before = refs[at - 1]
        records = [*loaded[before.token, before.number], *records]
        at, old = at - 1, [before, *old]
    new = [writer.write(kind, chunk) for chunk in chunks(kind, records)]
    refs[at : at + len(old)] = new
    kept_index = (*paged.index[:place], *paged.index[place + len(index) :])
    if not kept_index and len(refs) <= log_pages.SHARES[kind.name].pages_max:
        return Paged((), tuple(refs), recent)
    if not index:
        return Paged(paged.index, tuple(refs), recent)
    moved = len(refs) - _left_of_pages(paged.pages, old)
    rewritten = (writer.write(REFS, chunk) for chunk in chunks(REFS, refs[:moved]))
    return Paged(
        (*paged.index[:place], *rewritten, *paged.index[place + len(index) :]),
        tuple(refs[moved:]),
        recent,
    )


def _without(
    kind: RecordKind[T], records: Sequence[T], first_key: int, end_key: int, by: Sequence[T]
) -> tuple[T, ...]:
    """The records outside of [first_key, end_key), and `by` where those inside were."""
    before = (record for record in records if kind.end_key(record) <= first_key)
    behind = (record for record in records if kind.first_key(record) >= end_key)
    return (*before, *by, *behind)


def _joins(kind: RecordKind[T], before: PageRef, records: Sequence[T], loaded: Loaded) -> bool:
    size_bytes = before.size_bytes + kind.size_bytes(records)
    is_read = (before.token, before.number) in loaded
    return is_read and size_bytes <= log_pages.PAGE_BODY_SIZE_BYTES_MAX


def _left_of_pages(pages: Sequence[PageRef], old: Sequence[PageRef]) -> int:
    """How many pages that no index page names stay as they are."""
    return sum(1 for ref in pages if ref not in old)
