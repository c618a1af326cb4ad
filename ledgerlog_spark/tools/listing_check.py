"""Finds faults in the head and the pages of a log (LOGS.md#stored-state). Pure: no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.records import (
    NO_SCHEMA,
    Item,
    LogHead,
    LogKind,
    PageRef,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import RecordKind
from ledgerlog_spark.tools.findings import Severity, ToolFinding

RESTORE = "restore ZooKeeper from a backup, or copy the readable rows to a new log"


@dataclass(frozen=True, slots=True)
class LogListing:
    """Everything that the head of a log and its pages contain.

    Attributes:
        items: All items, of all pages and of the head.
        history: All versions.
        schemas: Ids of all schemas.
    """

    head: LogHead
    items: Sequence[Item]
    history: Sequence[VersionInterval]
    schemas: Collection[int]


def check_page(
    log: str, kind: RecordKind[Any], ref: PageRef, records: Sequence[Any]
) -> Iterator[ToolFinding]:
    """Yield a finding if a page does not have the records that the reference to it names."""
    if not records:
        found = "no record"
    else:
        counts = [getattr(record, "count", 1) for record in records]
        first, end = kind.first_key(records[0]), kind.end_key(records[-1])
        found = f"{sum(counts)} records from {first} to {end}"
    named = f"{ref.count} records from {ref.first_key} to {ref.end_key}"
    if found != named:
        yield _wrong(
            log,
            f"page {ref.number} of {ref.token} ({kind.name}) has {found}, and not {named}",
            RESTORE,
        )


def check_listing(listing: LogListing) -> Iterator[ToolFinding]:
    """Yield the findings about the list, the versions and the schemas of a log."""
    log = listing.head.name
    yield from _check_items(listing)
    yield from _check_history(listing)
    used = {item.schema_id for item in listing.items} | {v.schema_id for v in listing.history}
    unknown = sorted(used - {NO_SCHEMA} - set(listing.schemas))
    if unknown:
        ids = ", ".join(map(str, unknown))
        yield _wrong(log, f"rows have the schemas {ids}, which the log does not have", RESTORE)


def _check_items(listing: LogListing) -> Iterator[ToolFinding]:
    head, log = listing.head, listing.head.name
    items = [item for item in listing.items if item.end_offset > head.oldest_offset]
    for before, after in pairwise(items):
        if before.end_offset != after.first_offset:
            yield _wrong(
                log,
                f"the list has a gap or an overlap: ledger {before.ledger_id} ends at offset "
                f"{before.end_offset}, and ledger {after.ledger_id} begins at {after.first_offset}",
                RESTORE,
            )
    if items:
        first, last = items[0].first_offset, items[-1].end_offset
        if first > head.oldest_offset or last != head.end_offset:
            yield _wrong(
                log,
                f"the list has the offsets {first} to {last}, but the head has "
                f"{head.oldest_offset} to {head.end_offset}",
                RESTORE,
            )
    elif head.oldest_offset != head.end_offset:
        yield _wrong(
            log,
            f"the list is empty, but the head has the offsets {head.oldest_offset} to "
            f"{head.end_offset}",
            RESTORE,
        )
    for item in items:
        if item.has_index and not item.first_entry_id <= item.index_entry_id <= item.last_entry_id:
            yield _wrong(
                log,
                f"the index entry {item.index_entry_id} of ledger {item.ledger_id} is outside of "
                f"its range, {item.first_entry_id} to {item.last_entry_id}",
                RESTORE,
                item.ledger_id,
            )


def _check_history(listing: LogListing) -> Iterator[ToolFinding]:
    head, log = listing.head, listing.head.name
    versions = [each.version for each in listing.history if each.version >= head.oldest_version]
    if versions != list(range(head.oldest_version, head.version + 1)):
        yield _wrong(
            log,
            f"the log should have the versions {head.oldest_version} to {head.version}, but its "
            f"history has {len(versions)} of them",
            RESTORE,
        )
    if head.kind is LogKind.LEADER:
        return
    for before, after in pairwise(listing.history):
        if after.start_offset < before.start_offset or after.end_offset < before.end_offset:
            yield _wrong(
                log,
                f"version {after.version} has the offsets {after.start_offset} to "
                f"{after.end_offset}, which are before the offsets of version {before.version}",
                RESTORE,
            )


def check_ranges(
    listing: LogListing, records: Mapping[int, LedgerMetadata | None]
) -> Iterator[ToolFinding]:
    """Yield the findings about the ledgers that a log lists.

    Args:
        listing: The content of the log's head and pages.
        records: The metadata of each listed ledger, or None if it is missing or cannot be decoded.
            The metadata was read after the head and the pages.
    """
    ranges: dict[int, list[Item]] = defaultdict(list)
    for item in listing.items:
        ranges[item.ledger_id].append(item)
    for opened in listing.head.open_ledgers:
        ranges.setdefault(opened.ledger_id, [])
    for ledger_id, items in sorted(ranges.items()):
        yield from _check_ledger(listing.head, ledger_id, items, records.get(ledger_id))


def _check_ledger(
    head: LogHead, ledger_id: int, items: Sequence[Item], metadata: LedgerMetadata | None
) -> Iterator[ToolFinding]:
    log = head.name
    if metadata is None:
        rows = sum(item.rows for item in items)
        yield _wrong(
            log,
            f"the log lists ledger {ledger_id} with {rows:,} rows, but the metadata of this ledger "
            "is missing or unreadable",
            f"if you have an exported record of ledger {ledger_id}, run `ledgerlog ledgers import`",
            ledger_id,
        )
        return
    owner = metadata.custom.get(LOG_ID_KEY)
    if owner != head.log_id.encode():
        yield _wrong(
            log,
            f"the log lists ledger {ledger_id}, which belongs to "
            f"{'no log' if owner is None else 'the log ' + owner.decode(errors='replace')}",
            "do not delete this ledger; copy its rows to a new log",
            ledger_id,
        )
    last = max((item.last_entry_id for item in items), default=NO_ENTRY)
    if metadata.is_closed and metadata.last_entry_id < last:
        yield _wrong(
            log,
            f"the log lists ledger {ledger_id} up to entry {last}, but the ledger is closed at "
            f"entry {metadata.last_entry_id}",
            "the rows after this entry are lost, unless a bookie has them: look for them with "
            "`ledgerlog bookie dump`",
            ledger_id,
        )
    if head.kind is LogKind.LEADER and items and not metadata.is_closed:
        yield ToolFinding(
            Severity.WARNING,
            f"the log lists the end of ledger {ledger_id}, but the ledger is {metadata.state.name}",
            f"run `ledgerlog ledgers seal {ledger_id}`, which closes it at entry {last} or later",
            ledger_id,
            log,
        )


def _wrong(log: str, what: str, advice: str, ledger_id: int | None = None) -> ToolFinding:
    return ToolFinding(Severity.WRONG, what, advice, ledger_id, log)
