"""One task of a scan: converts entries to batches with exactly the schema of the scan."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.log.reading.listed_rows import RowCutter, decoded_rows
from ledgerlog_spark.model import LedgerMetadata

ReadEntries = Callable[[ScanRange], Iterable[Any]]
"""Reads the entries (`entry_id`, `payload`) of a range in order, from the first to the last."""

SMALL_BATCH_ROWS = 16_384
JOINED_BATCH_ROWS = 32_768
"""A batch costs Spark about 150 us, so small batches are joined up to about this number of rows."""

JOINED_SIZE_BYTES_MAX = 4 << 20
"""Maximum number of bytes of joined batches.

This limit is necessary because a row may have any size.
"""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The input of a task, sent from the driver. `log_ids` maps log names to log ids.

    `schemas` maps a log name and a schema id to the encoded schema of the rows. `ledgers` has
    metadata that the driver has read. The task reads any other metadata from the metadata store,
    and reads outdated metadata again.
    """

    ranges: tuple[ScanRange, ...]
    log_ids: Mapping[str, str]
    schemas: Mapping[tuple[str, int], bytes] = field(repr=False)
    include_metadata: bool = False
    ledgers: Mapping[int, LedgerMetadata] = field(default_factory=dict, repr=False)


def read_batches(
    task: ScanTask, target: pa.Schema, read_entries: ReadEntries, *, ignores_case: bool = True
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task in order, in batches of schema `target`.

    Raises the errors of `task_rows`.
    """
    conformer = Conformer(target, ignores_case=ignores_case)
    return joined(
        conformer.conform(batch)
        for scanned in task.ranges
        for batch in _range_batches(task, scanned, target, read_entries)
    )


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches.

    Small batches are joined, and empty batches are dropped. Between two incoming batches, this
    function keeps less than 32,768 rows and at most 4 MiB in memory. It keeps copies of the rows,
    so the memory of the incoming batches can be freed. If a DataLossError occurs, the rows before
    the lost entry are yielded first.
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
    """Copy a batch, because a column without compression keeps its whole entry in memory.

    Arrow copies only when it joins batches, so the batch is joined with an empty batch. This takes
    3 us.
    """
    return pa.concat_batches([batch, batch.slice(0, 0)])


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _range_batches(
    task: ScanTask, scanned: ScanRange, target: pa.Schema, read_entries: ReadEntries
) -> Iterator[pa.RecordBatch]:
    payloads = (entry.payload for entry in _contiguous(scanned, read_entries(scanned)))
    cutter = RowCutter(
        scanned.log,
        scanned.ledger_id,
        range(scanned.first_entry_id, scanned.last_entry_id + 1),
        range_offset=scanned.range_offset,
        rows=scanned.entry_rows,
        wanted=range(scanned.start_offset, scanned.end_offset),
    )
    decoded = decoded_rows(
        scanned.form,
        task.schemas[scanned.log, scanned.schema_id],
        payloads,
        range_offset=scanned.range_offset,
        columns=target.names,
    )
    for rows in decoded:
        entry_id, batch = cutter.next_entry_id, rows.batch
        kept = cutter.take(rows.first_row, batch.num_rows, len(rows.entries))
        if task.include_metadata:
            first = scanned.range_offset + rows.first_row
            batch = _with_metadata(batch, first, entry_id, rows.entries, scanned)
        if kept:
            yield batch if len(kept) == batch.num_rows else batch.slice(kept.start, len(kept))
    cutter.finish()


def _contiguous(scanned: ScanRange, entries: Iterable[Any]) -> Iterator[Any]:
    """Yield the entries, and raise an error if an entry is missing or out of order."""
    expected = scanned.first_entry_id
    for entry in entries:
        if entry.entry_id != expected:
            raise WireFormatError(
                f"ledger {scanned.ledger_id}: expected entry {expected}, got entry {entry.entry_id}"
            )
        yield entry
        expected += 1
    if expected != scanned.last_entry_id + 1:
        raise WireFormatError(
            f"ledger {scanned.ledger_id}: entries end before {expected}, but the log "
            f"lists the entries up to {scanned.last_entry_id}"
        )


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
    """Return the times of the rows from offset `first` on.

    If each entry has a time, these are the times of the entries. Otherwise they are commit times.
    """
    kind = pa.timestamp("us", tz="UTC")
    rows = sum(count for count, _ in entries)
    if all(time_ms is not None for _, time_ms in entries):
        return _repeated((count, 1_000 * (time_ms or 0)) for count, time_ms in entries).cast(kind)
    rows_end = first + rows
    pieces = []
    for end, time_ms in (*scanned.commit_times, (rows_end, None)):
        count = min(end, rows_end) - first
        if count > 0:
            micros = None if time_ms is None else time_ms * 1000
            pieces.append(pa.repeat(pa.scalar(micros, kind), count))
            first += count
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _repeated(runs: Iterable[tuple[int, int]]) -> pa.Array:
    """Repeat each number `count` times, without a Python object for each row."""
    numbers = array("q")
    for count, number in runs:
        numbers.extend(array("q", (number,)) * count)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
