"""What one task of a scan does: entries to batches of exactly the scan's schema."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.leader_batches import decode_record_bodies, decode_row_entries
from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.datasource.scan.ranges import EntryForm, ScanRange
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.log.entry_codec import plain_body
from ledgerlog_spark.model import LedgerMetadata

ReadEntries = Callable[[ScanRange], Iterable[Any]]
"""Entries (`entry_id`, `payload`) of a range, in order, first to last."""

SMALL_BATCH_ROWS = 16_384
JOINED_BATCH_ROWS = 32_768
"""A batch has a fixed price of about 150 us in Spark: smaller ones are joined up to this size."""

JOINED_SIZE_BYTES_MAX = 4 << 20
"""No further batch joins others when they would be larger than this: rows may be of any size."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """All that a task needs, as it travels from the driver.

    Attributes:
        ranges: What to read, in order.
        log_ids: Ids of the logs, by name.
        schemas: Schema messages of the ranges' rows, by log and schema id.
        include_metadata: Whether the scan's schema has the metadata columns.
        ledgers: Records of ledgers that the driver has read, by id; the task reads others, and
            these again when they turn out to be outdated.
    """

    ranges: tuple[ScanRange, ...]
    log_ids: Mapping[str, str]
    schemas: Mapping[tuple[str, int], bytes] = field(repr=False)
    include_metadata: bool = False
    ledgers: Mapping[int, LedgerMetadata] = field(default_factory=dict, repr=False)


def read_batches(
    task: ScanTask, target: pa.Schema, read_entries: ReadEntries, *, ignores_case: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order, in batches of the schema `target`.

    Raises:
        WireFormatError: An entry is not what the log says it is.
        SchemaMismatchError: Stored rows cannot become the target's.
        LedgerLogError: As `read_entries`.
    """
    conformer = Conformer(target, ignores_case=ignores_case)
    batches = (
        conformer.conform(batch)
        for scanned in task.ranges
        for batch in _range_batches(task, scanned, target, read_entries)
    )
    return joined(batches)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, small batches joined with their neighbours; empty batches are dropped.

    Holds less than 32,768 rows and at most 4 MiB before it passes them on. What waits is a copy:
    the batches that came are not kept. Rows in front of a lost entry are passed on before the
    DataLossError.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            batch_size_bytes = batch.nbytes
            if waiting and size_bytes + batch_size_bytes > JOINED_SIZE_BYTES_MAX:
                yield _join(waiting)
                waiting, rows, size_bytes = [], 0, 0
            has_many_rows = batch.num_rows >= SMALL_BATCH_ROWS
            if not waiting and (has_many_rows or batch_size_bytes > JOINED_SIZE_BYTES_MAX):
                yield batch
                continue
            waiting.append(_copied(batch))
            rows += batch.num_rows
            size_bytes += batch_size_bytes
            if rows >= JOINED_BATCH_ROWS:
                yield _join(waiting)
                waiting, rows, size_bytes = [], 0, 0
    except DataLossError:
        if waiting:
            yield _join(waiting)
        raise
    if waiting:
        yield _join(waiting)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in memory of their own: columns without compression point into whole entries.

    Arrow copies when it joins two batches, and only then. It takes 3 us.
    """
    return pa.concat_batches([batch, batch.slice(0, 0)])


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Rows(NamedTuple):
    """The rows of some consecutive entries.

    Attributes:
        batch: The rows.
        first_row: Place of the first of them in the listed range.
        entries: Of each entry how many rows it has, and when they came into the log in ms since
            the epoch; None where the range says when they were committed.
    """

    batch: pa.RecordBatch
    first_row: int
    entries: Sequence[tuple[int, int | None]]


def _decoded(
    task: ScanTask, scanned: ScanRange, payloads: Iterable[Any], columns: Sequence[str]
) -> Iterator[_Rows]:
    if scanned.form is EntryForm.ARROW_STREAM:
        stored = task.schemas[scanned.log, scanned.schema_id]
        for entry in decode_entries(stored, payloads, columns=columns):
            yield _Rows(entry.batch, entry.first_row, ((entry.batch.num_rows, None),))
        return
    if scanned.form is EntryForm.LEADER_RECORDS:
        decoded = decode_record_bodies(map(plain_body, payloads))
    else:
        stored = task.schemas[scanned.log, scanned.schema_id]
        decoded = decode_row_entries(stored, payloads, columns=columns)
    for each in decoded:
        yield _Rows(each.batch, each.first_offset - scanned.range_offset, each.entries)


def _range_batches(
    task: ScanTask, scanned: ScanRange, target: pa.Schema, read_entries: ReadEntries
) -> Iterator[pa.RecordBatch]:
    payloads = (entry.payload for entry in _contiguous(scanned, read_entries(scanned)))
    next_row = None if scanned.entry_rows is None else scanned.entry_rows[0]
    entry_id = scanned.first_entry_id
    for rows in _decoded(task, scanned, payloads, target.names):
        if rows.first_row < 0 or next_row not in {None, rows.first_row}:
            raise _wrong_first_row(scanned, entry_id, rows.first_row, next_row)
        next_row = rows.first_row + rows.batch.num_rows
        first = scanned.range_offset + rows.first_row
        batch = rows.batch
        if task.include_metadata:
            batch = _with_metadata(batch, first, entry_id, rows.entries, scanned)
        entry_id += len(rows.entries)
        kept = _rows_within(batch, first, scanned)
        if kept.num_rows:
            yield kept
    if scanned.entry_rows is not None and next_row != scanned.entry_rows[1]:
        raise WireFormatError(
            f"entries {scanned.first_entry_id} to {scanned.last_entry_id} of ledger "
            f"{scanned.ledger_id} hold rows up to {next_row} of their range, and those up to "
            f"{scanned.entry_rows[1]} are listed. The ledger is not what log {scanned.log!r} lists."
        )


def _contiguous(scanned: ScanRange, entries: Iterable[Any]) -> Iterator[Any]:
    """The entries, each checked to be the next one."""
    expected = scanned.first_entry_id
    for entry in entries:
        if entry.entry_id != expected:
            raise WireFormatError(
                f"ledger {scanned.ledger_id}: entry {expected} was to come, {entry.entry_id} came"
            )
        yield entry
        expected += 1
    if expected != scanned.last_entry_id + 1:
        raise WireFormatError(
            f"ledger {scanned.ledger_id}: entries end before {expected}, listed are those up to "
            f"{scanned.last_entry_id}"
        )


def _rows_within(batch: pa.RecordBatch, first: int, scanned: ScanRange) -> pa.RecordBatch:
    """The entry's rows that are part of the scan; `first` is the offset of its first row."""
    rows = batch.num_rows
    begin = min(rows, max(0, scanned.start_offset - first))
    end = max(begin, min(rows, scanned.end_offset - first))
    return batch if end - begin == rows else batch.slice(begin, end - begin)


def _with_metadata(
    batch: pa.RecordBatch,
    first_offset: int,
    first_entry_id: int,
    entries: Sequence[tuple[int, int | None]],
    scanned: ScanRange,
) -> pa.RecordBatch:
    rows = batch.num_rows
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows)
    values = {
        "_log": pa.repeat(pa.scalar(scanned.log), rows),
        "_ledger": pa.repeat(pa.scalar(scanned.ledger_id, pa.int64()), rows),
        "_entry": _repeated(
            (count, first_entry_id + place) for place, (count, _) in enumerate(entries)
        ),
        "_offset": pc.cumulative_sum(ones, start=first_offset - 1),
        "_append_time": _times_of(entries, first_offset, scanned),
    }
    names = [name for name in batch.schema.names if name not in METADATA_COLUMNS]
    arrays = [*(batch.column(name) for name in names), *values.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *values])


def _times_of(
    entries: Sequence[tuple[int, int | None]], first: int, scanned: ScanRange
) -> pa.Array:
    """When the rows came: as the entries say, else as the commits from offset `first` on do."""
    kind = pa.timestamp("us", tz="UTC")
    rows = sum(count for count, _ in entries)
    if all(time_ms is not None for _, time_ms in entries):
        return _repeated((count, 1_000 * (time_ms or 0)) for count, time_ms in entries).cast(kind)
    behind = first + rows
    pieces = []
    for end, time_ms in (*scanned.commit_times, (behind, None)):
        count = min(end, behind) - first
        if count > 0:
            micros = None if time_ms is None else time_ms * 1000
            pieces.append(pa.repeat(pa.scalar(micros, kind), count))
            first += count
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _repeated(runs: Iterable[tuple[int, int]]) -> pa.Array:
    """Each number as often as said; a loop over entries, so it makes no Arrow value for each."""
    numbers = array("q")
    for count, number in runs:
        if count == 1:
            numbers.append(number)
        else:
            numbers.extend(array("q", (number,)) * count)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _wrong_first_row(
    scanned: ScanRange, entry_id: int, found: int, expected: int | None
) -> WireFormatError:
    wanted = "this source wrote no such entry" if expected is None else f"{expected} was expected"
    return WireFormatError(
        f"entry {entry_id} of ledger {scanned.ledger_id} has {found} as its first row: "
        f"{wanted}. The ledger is not what log {scanned.log!r} lists."
    )
