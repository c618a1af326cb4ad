"""Finds a head's current schema among its pages, one page at a time (LOGS.md#G2, LOGS.md#G6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest, overlapping
from ledgerlog_spark.protocol.log.state.records import NO_SCHEMA, LogHead, SchemaRecord
from ledgerlog_spark.protocol.log.state.rows import REFS, SCHEMAS

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.messages import PagesRead


def by_place(wanted: tuple[PageRequest, ...], reply: PagesRead) -> Loaded:
    """The records of the pages that were asked for, by token and number."""
    return {
        (page.ref.token, page.ref.number): records
        for page, records in zip(wanted, reply.pages, strict=True)
    }


def schema_in(head: LogHead, pages: Loaded) -> bytes | None:
    """The head's current schema, None as long as its page is not among `pages`."""
    records = [*head.schemas.recent]
    for page in pages.values():
        records += [record for record in page if isinstance(record, SchemaRecord)]
    return next((r.schema for r in records if r.schema_id == head.schema_id), None)


def schema_pages_of(head: LogHead, read: Loaded) -> tuple[PageRequest, ...]:
    """The next page on the way to the head's current schema."""
    first, end = head.schema_id, head.schema_id + 1
    assert first != NO_SCHEMA
    indexed = [ref for refs in read.values() for ref in refs if not isinstance(ref, SchemaRecord)]
    wanted = [
        *(PageRequest(SCHEMAS, ref) for ref in overlapping(head.schemas.pages, first, end)),
        *(PageRequest(SCHEMAS, ref) for ref in overlapping(indexed, first, end)),
        *(PageRequest(REFS, ref) for ref in overlapping(head.schemas.index, first, end)),
    ]
    return tuple(page for page in wanted if (page.ref.token, page.ref.number) not in read)[:1]
