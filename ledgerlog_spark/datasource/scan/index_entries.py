"""Finds out which entries of a range a scan needs, for the planner and for tasks.

For a range of a transactional log, this module reads the index entry. The index may list slices:
the places of the columns in each entry. A scan of few columns then reads these slices instead of
whole entries (LOGS.md#G14). A leader log has no index entries, so this module reads the headers of
a few entries. A scan also works without an index, but it reads more data. If all bookies have
lost an index entry, the task reads the whole range. That read raises an error if rows are also
lost.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledgerlog_spark.arrow.batch_message import buffer_counts
from ledgerlog_spark.arrow.column_slices import RequestedSlices
from ledgerlog_spark.arrow.stream_codec import decode_entries, decode_schema, places_of
from ledgerlog_spark.datasource.scan.ranges import (
    EntrySpan,
    HeaderOf,
    RangeIndex,
    ScanRange,
    entries_between,
    needed_part,
)
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.errors import DataLossError, LedgerLogError, WireFormatError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader.entry import LeaderEntryHeader, decode_entry_header

INDEXES_AHEAD_MAX = 32

_logger = logging.getLogger(__name__)


Slices = Mapping[ScanRange, RequestedSlices]
"""Maps ranges to the slices that a task reads.

If a range is not in the mapping, its entries are read completely.
"""


def read_indexes(
    logs: BlockingLogs,
    ranges: Sequence[ScanRange],
    *,
    log_ids: Mapping[str, str],
    schemas: Mapping[tuple[str, int], bytes],
    password: bytes,
) -> dict[tuple[int, int], RangeIndex]:
    """Read indexes, and return them by ledger id and index entry id.

    The result does not contain lost indexes. The id of a range's index entry is `index_entry_id`.
    If this id is NO_ENTRY, the id of the index entry is `slices_entry_id`, and the index is read
    only for its slices. An index that is read only for its slices is left out after any error.
    `log_ids` maps log names to log ids. The keys of `schemas` are log name and schema id.
    """
    # All pieces of one range have the same index, so the index is read once.
    by_key = {(each.ledger_id, _index_id(each)): each for each in ranges}
    indexes: dict[tuple[int, int], RangeIndex] = {}
    for name in dict.fromkeys(each.log for each in by_key.values()):
        log = logs.open_by_id(name, log_ids[name])
        of_log = [each for each in by_key.values() if each.log == name]
        for start in range(0, len(of_log), INDEXES_AHEAD_MAX):
            some = of_log[start : start + INDEXES_AHEAD_MAX]
            places = [(each.ledger_id, _index_id(each), _index_id(each)) for each in some]
            readers = log.begin_ranges(places, password=password)
            try:
                for scanned, reader in zip(some, readers, strict=True):
                    try:
                        payload = next(iter(reader))[0].payload
                        index = _decoded(scanned, schemas[name, scanned.schema_id], payload)
                    except LedgerLogError as error:
                        # If an index is read only for its slices, the scan does not require the
                        # index, so errors of this read are ignored.
                        is_needed = scanned.index_entry_id != NO_ENTRY
                        if is_needed and not isinstance(error, DataLossError):
                            raise
                        _report("index entry not read, so its whole range is read", error)
                    else:
                        indexes[scanned.ledger_id, _index_id(scanned)] = index
            finally:
                for reader in readers:
                    reader.close()
    return indexes


def find_span(
    logs: BlockingLogs, scanned: ScanRange, *, log_id: str, password: bytes
) -> EntrySpan | None:
    """Find the entries with the wanted rows in a range of a leader log.

    The result is None if an entry is lost.
    """
    header_of = header_reader(
        logs, scanned.log, log_id, ledger_id=scanned.ledger_id, password=password
    )
    try:
        return entries_between(scanned, header_of)
    except DataLossError as error:
        _report("entry lost, so its whole range is read", error)
        return None


def header_reader(
    logs: BlockingLogs, log: str, log_id: str, *, ledger_id: int, password: bytes
) -> HeaderOf:
    """Return a function that reads the header of an entry in a ledger of a leader log."""
    opened = logs.open_by_id(log, log_id)

    def header_of(entry_id: int) -> LeaderEntryHeader:
        (reader,) = opened.begin_ranges([(ledger_id, entry_id, entry_id)], password=password)
        try:
            return decode_entry_header(next(iter(reader))[0].payload)
        finally:
            reader.close()

    return header_of


def with_needed_entries(
    logs: BlockingLogs, task: ScanTask, columns: Sequence[str], password: bytes
) -> tuple[ScanTask, Slices]:
    """Return the task with only the entries that contain wanted rows, and the slices to read.

    `columns` are the names of the wanted columns. The case of these names does not matter.
    """
    wanted = [scanned for scanned in task.ranges if _index_id(scanned) != NO_ENTRY]
    if not wanted and not any(scanned.is_searched for scanned in task.ranges):
        return task, {}
    indexes = read_indexes(
        logs, wanted, log_ids=task.log_ids, schemas=task.schemas, password=password
    )

    def needed(scanned: ScanRange) -> ScanRange | None:
        span = None
        if scanned.is_searched:
            span = find_span(logs, scanned, log_id=task.log_ids[scanned.log], password=password)
        index = indexes.get((scanned.ledger_id, scanned.index_entry_id))
        return needed_part(scanned, index, span)

    parts = tuple(part for part in map(needed, task.ranges) if part is not None)
    pruned = {key: _pruned_places(schema, columns) for key, schema in task.schemas.items()}
    slices: dict[ScanRange, RequestedSlices] = {}
    for part in parts:
        index = indexes.get((part.ledger_id, part.slices_entry_id))
        places = pruned.get((part.log, part.schema_id))
        if index is None or places is None or not index.slices:
            continue
        requested = RequestedSlices(index.first_entry_id, index.slices, *places)
        if requested.is_worthwhile(part.first_entry_id, part.last_entry_id):
            slices[part] = requested
    return replace(task, ranges=parts), slices


def _pruned_places(
    encoded: bytes, columns: Sequence[str]
) -> tuple[list[int], Sequence[int]] | None:
    """Return the places of `columns` in stored rows, and each stored column's number of buffers.

    The result is None if all columns are wanted, or if a stored column does not consist of buffers
    only.
    """
    if not encoded:
        return None  # a log of records has no columns
    schema = decode_schema(encoded)
    places, counts = places_of(schema, columns), buffer_counts(schema)
    return (places, counts) if counts is not None and len(places) < len(counts) else None


def _index_id(scanned: ScanRange) -> int:
    if scanned.index_entry_id != NO_ENTRY:
        return scanned.index_entry_id
    return scanned.slices_entry_id


def _report(event: str, error: LedgerLogError) -> None:
    _logger.warning("%s", json.dumps({"event": event, **error.fields}))


def _decoded(scanned: ScanRange, schema: bytes, payload: Any) -> RangeIndex:
    decoded = list(decode_entries(schema, [payload], columns=[]))
    entries = decoded[0].index if len(decoded) == 1 else None
    if entries is None:
        raise WireFormatError(
            f"entry {_index_id(scanned)} of ledger {scanned.ledger_id} is not the index that "
            f"log {scanned.log!r} lists"
        )
    return RangeIndex.of(_index_id(scanned), entries)
