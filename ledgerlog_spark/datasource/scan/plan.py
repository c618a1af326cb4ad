"""Plans a scan: decides which task reads which entries.

The planner is pure: it computes a `ScanPlan` from the state of the logs and the options. The files
in `tests/golden/plan` contain cases with their plans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ledgerlog_spark.arrow.column_slices import SLICED_SIZE_BYTES_MIN
from ledgerlog_spark.datasource.options.starting_offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    checked_offset,
    offset_for,
)
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.ranges import (
    OPEN_COST_BYTES,
    EntrySpan,
    RangeIndex,
    ScanRange,
    needed_part,
)
from ledgerlog_spark.datasource.skipping.needs import Listed, Needs
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.log.reading.listed_rows import EntryForm
from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, LogSnapshot, VersionInterval

_Listed = tuple["LogScan", Item, ScanRange]

INDEXES_MAX = 64
"""Maximum number of index entries to read before planning. A large index entry has 1 to 2 MB."""
TASK_BYTES_MIN = 4 << 20
"""Minimum number of encoded bytes for a separate task. A task costs about 50 ms."""
NO_FILTERS = Needs()
_SHARE_SLACK = 1.05
"""Factor by which a task may be larger than its equal share of the bytes.

The tasks of one job write ranges of about equal size. Without this factor, a range that is a little
larger than a share would be cut.
"""


@dataclass(frozen=True, slots=True)
class LogScan:
    """One log that the scan reads, as input of the planner.

    The snapshot does not change during the scan. The state of the ledgers does not matter: a listed
    range is read to its end, even if its ledger is open. `indexes` and `spans` describe the ranges
    that `indexes_wanted` returned.
    """

    snapshot: LogSnapshot
    history: Sequence[VersionInterval] = ()  # versions in ascending order, for commit times of rows
    ledgers: Mapping[int, LedgerMetadata] = field(default_factory=dict)
    # the keys are ledger id and index entry id
    indexes: Mapping[tuple[int, int], RangeIndex] = field(default_factory=dict)
    # for a leader log: maps ledger ids to the entries with the rows between the offsets
    spans: Mapping[int, EntrySpan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScanPartition:
    """The ranges that one task reads, in the order of the rows."""

    ranges: tuple[ScanRange, ...]

    @property
    def size_bytes(self) -> int:
        """Estimated number of payload bytes."""
        return sum(scanned.size_bytes for scanned in self.ranges)

    @property
    def rows(self) -> int:
        """Estimated number of rows."""
        return sum(scanned.rows for scanned in self.ranges)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """All tasks of a scan, in the order of the rows."""

    partitions: tuple[ScanPartition, ...]
    versions: Mapping[str, int]  # maps each log name to the version that the scan reads
    ledgers: Mapping[int, LedgerMetadata]  # maps ledger ids to metadata that the driver has read


def plan(
    logs: Sequence[LogScan],
    options: SourceOptions,
    *,
    parallelism: int = 1,
    needs: Needs = NO_FILTERS,
) -> ScanPlan:
    """Plan a scan. Entries are omitted if no row of them is needed according to `needs`.

    `parallelism` is the number of tasks that run at once. Without the option `minPartitions`, a
    scan is cut into about `parallelism` tasks, or into more if other options limit the size of a
    task. A small scan has fewer tasks, because a task may always have `TASK_BYTES_MIN` bytes. If
    `parallelism` is 1, only the options limit the size of a task.

    Raises:
        ConfigurationError: The offsets name a log that is not read, an offset is after the end of
            the log, or the end is before the start.
        DataLossError: Rows between the offsets were truncated, and `fail_on_data_loss` is set.
    """
    parts = []
    for log, item, listed in _listed(logs, options, needs):
        index, span = _index_of(log, item), log.spans.get(listed.ledger_id)
        if (part := needed_part(listed, index, span)) is not None:
            parts.append((log, Listed(log.snapshot, item, part, index)))
    pieces_of_parts = needs.pieces([part for _, part in parts])
    needed = [
        (log, part.item, piece)
        for (log, part), pieces in zip(parts, pieces_of_parts, strict=True)
        for piece in pieces
    ]
    limits = _Limits.of([scanned for _, _, scanned in needed], options, parallelism)
    cut = [
        piece
        for log, item, scanned in needed
        for piece in _split(scanned, limits, item, _index_of(log, item))
    ]
    read = {piece.ledger_id for piece in cut}
    return ScanPlan(
        partitions=tuple(_pack(cut, limits)),
        versions={log.snapshot.name: log.snapshot.interval.version for log in logs},
        ledgers={i: m for log in logs for i, m in log.ledgers.items() if i in read},
    )


def indexes_wanted(
    logs: Sequence[LogScan],
    options: SourceOptions,
    *,
    parallelism: int = 1,
    needs: Needs = NO_FILTERS,
) -> list[ScanRange]:
    """Return at most INDEXES_MAX ranges whose indexes are worth reading before the scan is planned.

    There are two kinds of these ranges. A range of the first kind may have entries whose rows do
    not pass the filters. A range of the second kind has rows outside the offsets of the scan, and
    is so large that several tasks share it. Without the index, the planner would estimate where the
    wanted rows are, and some tasks would have no rows. If only one task reads a range of the second
    kind, this task reads the index. A leader log has no indexes. For the ranges of a leader log,
    the caller reads headers of entries instead. Raises the errors of `plan`.
    """
    wanted = _listed(logs, options, needs)
    limits = _Limits.of([scanned for _, _, scanned in wanted], options, parallelism)
    cut = [
        scanned
        for _, _, scanned in wanted
        if (scanned.index_entry_id != NO_ENTRY or scanned.is_searched)
        and _pieces(scanned, limits) > 1
    ]
    filtered = [
        replace(scanned, index_entry_id=item.index_entry_id)
        for log, item, scanned in wanted
        if _narrowing_pays(item) and needs.needs_index(Listed(log.snapshot, item, scanned))
    ]
    filtered.sort(key=lambda scanned: scanned.size_bytes, reverse=True)
    # The ranges that the offsets cut come first. A log has at most two of these ranges.
    chosen = {(each.ledger_id, each.index_entry_id): each for each in [*cut, *filtered]}
    return list(chosen.values())[:INDEXES_MAX]


def _listed(logs: Sequence[LogScan], options: SourceOptions, needs: Needs) -> list[_Listed]:
    """Return the listed ranges to read. Raises an error if offsets name a log that is not read."""
    known = {log.snapshot.name for log in logs} | {"*"}
    for offsets in (options.starting_offsets, options.ending_offsets):
        given = set() if isinstance(offsets, str) else set(offsets)
        if strangers := sorted(given - known):
            raise ConfigurationError(
                f"offsets are given for {', '.join(strangers)}, which this scan does not read",
                logs=tuple(strangers),
            )
    listed = [(log, item, scanned) for log in logs for scanned, item in _ranges_of(log, options)]
    flags = needs.ranges([Listed(log.snapshot, item, scanned) for log, item, scanned in listed])
    return [each for each, is_needed in zip(listed, flags, strict=True) if is_needed]


def _index_of(log: LogScan, item: Item) -> RangeIndex | None:
    return log.indexes.get((item.ledger_id, item.index_entry_id))


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits for the input of one task."""

    size_bytes: int
    rows: int | None

    @classmethod
    def of(cls, ranges: Sequence[ScanRange], options: SourceOptions, parallelism: int) -> _Limits:
        size_bytes = options.max_bytes_per_partition
        if options.min_partitions is not None:
            total = sum(scanned.size_bytes for scanned in ranges)
            size_bytes = max(1, min(size_bytes, -(-total // options.min_partitions)))
        elif parallelism > 1:
            total = sum(scanned.size_bytes + OPEN_COST_BYTES for scanned in ranges)
            share = int(total / parallelism * _SHARE_SLACK)
            size_bytes = min(size_bytes, max(share, TASK_BYTES_MIN))
        return cls(size_bytes, options.max_records_per_partition)


def interval_of(log: LogScan, options: SourceOptions) -> tuple[int, int]:
    """Return the first offset and the end offset of the rows to read, within the version."""
    name, interval = log.snapshot.name, log.snapshot.interval

    def offset(option: str, offsets: Offsets, default: str, *, fail_on_data_loss: bool) -> int:
        first, last = interval.start_offset, interval.end_offset
        return checked_offset(
            option,
            name,
            offset_for(offsets, name, start=first, end=last, default=default),
            start=first,
            end=last,
            version=None if log.snapshot.kind is LogKind.LEADER else interval.version,
            fail_on_data_loss=fail_on_data_loss,
        )

    fails = options.fail_on_data_loss
    start = offset("startingOffsets", options.starting_offsets, EARLIEST, fail_on_data_loss=fails)
    end = offset("endingOffsets", options.ending_offsets, LATEST, fail_on_data_loss=False)
    if start > end:
        raise ConfigurationError(
            f"the read of log {name!r} would begin at offset {start} and end before it, at offset "
            f'{end}. Correct "startingOffsets" or "startingTimestamp", or "endingOffsets" or '
            f'"endingTimestamp". The row at the end is not read, so both offsets may be equal.',
            log=name,
            start_offset=start,
            end_offset=end,
        )
    return start, end


def _ranges_of(log: LogScan, options: SourceOptions) -> Iterator[tuple[ScanRange, Item]]:
    """Yield the listed ranges that overlap the rows to read, each with all its entries."""
    start, end = interval_of(log, options)
    form = EntryForm.of(log.snapshot.kind, log.snapshot.content)
    is_leader = form is not EntryForm.ARROW_STREAM
    for item in log.snapshot.items:
        first, end_offset = max(start, item.first_offset), min(end, item.end_offset)
        if first >= end_offset:
            continue
        is_cut = end_offset - first < item.rows
        use_index = is_cut and item.has_index and _narrowing_pays(item)
        is_searched = is_cut and is_leader and _narrowing_pays(item)
        size_bytes = item.size_bytes * (end_offset - first) // item.rows
        yield (
            ScanRange(
                log=log.snapshot.name,
                ledger_id=item.ledger_id,
                first_entry_id=item.first_entry_id,
                last_entry_id=item.last_entry_id - item.has_index,
                rows=end_offset - first,
                size_bytes=size_bytes if use_index or is_searched else item.size_bytes,
                schema_id=item.schema_id,
                range_offset=item.first_offset,
                start_offset=first,
                end_offset=end_offset,
                commit_times=() if is_leader else _commit_times(log.history, first, end_offset),
                index_entry_id=item.index_entry_id if use_index else NO_ENTRY,
                slices_entry_id=item.index_entry_id if _may_be_sliced(item) else NO_ENTRY,
                index_entries=_entries_of(item) if _may_be_sliced(item) else 0,
                entry_rows=(0, item.rows),
                form=form,
                is_searched=is_searched,
            ),
            item,
        )


def _narrowing_pays(item: Item) -> bool:
    """Whether reading the index, or searching the range, may save more than it costs."""
    return _entries_of(item) > 1 and item.size_bytes > OPEN_COST_BYTES


def _entries_of(item: Item) -> int:
    """Return the number of entries with rows."""
    return item.last_entry_id - item.first_entry_id + 1 - item.has_index


def _may_be_sliced(item: Item) -> bool:
    """Whether the index entry of a range may list slices."""
    return item.has_index and item.size_bytes >= SLICED_SIZE_BYTES_MIN


def _commit_times(
    history: Sequence[VersionInterval], first: int, end_offset: int
) -> tuple[tuple[int, int | None], ...]:
    """Return the commit times of the rows from `first` to before `end_offset`.

    A merged range has rows of several commits. A row was committed with the first version that
    contains the row. The history shows which version is the first only if the history also contains
    the previous version. Version 0 is empty, and no version precedes it.
    """
    if not history:
        return ()
    place = bisect_right(history, first, key=lambda version: version.end_offset)
    times: list[tuple[int, int | None]] = []
    for version in history[place:]:
        is_first = version.version == 0 or bool(times) or place > 0
        end = min(version.end_offset, end_offset)
        if not times or end > times[-1][0]:
            times.append((end, version.commit_time_ms if is_first else None))
        if end == end_offset:
            return tuple(times)
    return (*times, (end_offset, None))


def _pieces(scanned: ScanRange, limits: _Limits) -> int:
    """Return the number of pieces into which a range is cut."""
    count = max(1, -(-scanned.size_bytes // limits.size_bytes))
    if limits.rows is not None:
        count = max(count, -(-scanned.rows // limits.rows))
    return min(count, scanned.last_entry_id - scanned.first_entry_id + 1)


def _split(
    scanned: ScanRange, limits: _Limits, item: Item, index: RangeIndex | None
) -> Iterator[ScanRange]:
    """Cut a range into pieces with about equal numbers of entries.

    In a transactional log, a range has no index entry if its writer was fenced before it appended
    the index. Such a range is not cut.
    """
    is_leader = scanned.form is not EntryForm.ARROW_STREAM
    count = _pieces(scanned, limits) if item.has_index or is_leader else 1
    if count == 1:
        yield scanned
        return
    entries = scanned.last_entry_id - scanned.first_entry_id + 1
    for number in range(count):
        first = entries * number // count
        end = entries * (number + 1) // count
        if index is not None:
            before = scanned.first_entry_id - index.first_entry_id
            yield index.part(scanned, before + first, before + end)
            continue
        yield replace(
            scanned,
            first_entry_id=scanned.first_entry_id + first,
            last_entry_id=scanned.first_entry_id + end - 1,
            rows=scanned.rows * end // entries - scanned.rows * first // entries,
            size_bytes=scanned.size_bytes * end // entries - scanned.size_bytes * first // entries,
            entry_rows=None,
        )


def _pack(pieces: Sequence[ScanRange], limits: _Limits) -> Iterator[ScanPartition]:
    """Group consecutive pieces into tasks. Only a task of one piece may exceed the limits."""
    taken: list[ScanRange] = []
    size_bytes = rows = 0
    for piece in pieces:
        too_large = size_bytes + piece.size_bytes > limits.size_bytes
        too_many = limits.rows is not None and rows + piece.rows > limits.rows
        if taken and (too_large or too_many):
            yield ScanPartition(tuple(taken))
            taken, size_bytes, rows = [], 0, 0
        taken.append(piece)
        size_bytes += piece.size_bytes + OPEN_COST_BYTES
        rows += piece.rows
    if taken:
        yield ScanPartition(tuple(taken))
