"""Reads the input of a scan's plan from the cluster, on the driver. `plan` makes the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ledgerlog_spark.client.recent_records import memory_size_bytes
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.index_entries import find_span, read_indexes
from ledgerlog_spark.datasource.scan.pinned import PinnedLog
from ledgerlog_spark.datasource.scan.plan import (
    NO_FILTERS,
    LogScan,
    ScanPartition,
    ScanPlan,
    indexes_wanted,
    interval_of,
    plan,
)
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.slice_choice import FirstColumns, SliceChoice, no_columns
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.time_travel import requested_offsets, requested_version
from ledgerlog_spark.datasource.schemas import (
    records_schema,
    reject_unknown_columns,
    scan_schema,
    with_records_schema,
)
from ledgerlog_spark.datasource.skipping.needs import Needs
from ledgerlog_spark.errors import LogNotFoundError, SchemaMismatchError
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind, LogSnapshot

RECORDS_MAX = 1_000
"""Maximum number of ledgers whose metadata the driver sends to tasks.

The tasks themselves read the metadata of all other ledgers.
"""

RECORD_SIZE_BYTES_MAX = 64 << 10
"""Maximum size of a ledger's metadata that is sent to tasks.

Each task gets a copy of the metadata.
"""


def schema_of(logs: BlockingLogs, options: SourceOptions) -> str:
    """Return the schema of a scan of logs, as JSON."""
    return scan_schema(
        [
            (log.name, _schema_in(log, requested_version(logs, log, options)))
            for log in _opened(logs, options)
        ],
        columns=options.columns,
        include_metadata=options.include_metadata,
    )


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """The plan of a scan, with the log ids and schemas that its tasks need.

    `schemas` maps a log name and a schema id to the encoded schema of the rows. `log_ids` maps log
    names to log ids. The plan's `ledgers` contain the metadata that the driver has read.
    `snapshots` are the states of the logs that the scan reads. `pinned` maps log names to the rows
    that the scan reads.
    """

    plan: ScanPlan
    log_ids: Mapping[str, str]
    schemas: Mapping[tuple[str, int], bytes]
    snapshots: tuple[LogSnapshot, ...] = ()
    pinned: Mapping[str, PinnedLog] = field(default_factory=dict)

    def for_columns(
        self, columns: Sequence[str], first_columns: FirstColumns = no_columns
    ) -> PlannedScan:
        """Return the same scan for some columns only.

        Its tasks read slices of the ranges for which slices save bytes.
        """
        choice = SliceChoice(self.schemas, columns, first_columns)
        partitions = tuple(
            ScanPartition(choice.chosen(partition.ranges)) for partition in self.plan.partitions
        )
        return replace(self, plan=replace(self.plan, partitions=partitions))

    def tasks(self, *, include_metadata: bool) -> list[ScanTask]:
        """Return one task for each partition."""
        ledgers = self.plan.ledgers
        return [
            ScanTask(
                ranges=partition.ranges,
                log_ids={scanned.log: self.log_ids[scanned.log] for scanned in partition.ranges},
                schemas={
                    (scanned.log, scanned.schema_id): self.schemas[scanned.log, scanned.schema_id]
                    for scanned in partition.ranges
                },
                include_metadata=include_metadata,
                ledgers={
                    scanned.ledger_id: ledgers[scanned.ledger_id]
                    for scanned in partition.ranges
                    if scanned.ledger_id in ledgers
                },
            )
            for partition in self.plan.partitions
        ]


def planned_scan(
    logs: BlockingLogs,
    options: SourceOptions,
    schema: pa.Schema,
    *,
    parallelism: int = 1,
    password: bytes = b"",
    needs: Needs = NO_FILTERS,
    pinned: Mapping[str, PinnedLog] | None = None,
) -> PlannedScan:
    """Take a snapshot of each log, and plan the scan of the columns in `schema`.

    For `parallelism` and `needs`, see `plan`. If `pinned` is not None, the scan reads the rows that
    an earlier scan with the same options chose.
    """
    scans = _scans(logs, options, pinned)
    reject_unknown_columns(
        schema, [scan.snapshot for scan in scans], include_metadata=options.include_metadata
    )
    if pinned is None:
        start, end = requested_offsets(logs, scans, options, password)
    else:
        start = {name: each.start_offset for name, each in pinned.items()}
        end = {name: each.end_offset for name, each in pinned.items()}
    chosen = replace(options, starting_offsets=start, ending_offsets=end)
    planned = _planned(logs, scans, chosen, parallelism, password, needs)
    pins = pinned or {scan.snapshot.name: _pin(scan, chosen) for scan in scans}
    return replace(planned, pinned=pins).for_columns(schema.names, needs.first_columns)


def _pin(scan: LogScan, options: SourceOptions) -> PinnedLog:
    snapshot = scan.snapshot
    version = None if snapshot.kind is LogKind.LEADER else snapshot.interval.version
    return PinnedLog(snapshot.log_id, version, *interval_of(scan, options))


def tasks_from(
    logs: BlockingLogs,
    scans: list[LogScan],
    options: SourceOptions,
    *,
    parallelism: int = 1,
    password: bytes = b"",
) -> list[ScanTask]:
    """Return the tasks that scan these snapshots between the offsets in the options.

    The wanted columns are not known yet. So the tasks contain no choice of slices.
    """
    planned = _planned(logs, scans, options, parallelism, password, NO_FILTERS)
    return planned.tasks(include_metadata=options.include_metadata)


def _planned(
    logs: BlockingLogs,
    scans: list[LogScan],
    options: SourceOptions,
    parallelism: int,
    password: bytes,
    needs: Needs,
) -> PlannedScan:
    wanted = indexes_wanted(scans, options, parallelism=parallelism, needs=needs)
    scans = _with_indexes(logs, scans, wanted, password)
    schemas = {scan.snapshot.name: scan.snapshot.schemas for scan in scans}
    planned = plan(scans, options, parallelism=parallelism, needs=needs)
    return PlannedScan(
        plan=replace(planned, ledgers=_records(logs, planned.partitions)),
        log_ids={scan.snapshot.name: scan.snapshot.log_id for scan in scans},
        schemas={
            (scanned.log, scanned.schema_id): _schema_of(scanned, schemas[scanned.log])
            for partition in planned.partitions
            for scanned in partition.ranges
        },
        snapshots=tuple(scan.snapshot for scan in scans),
    )


def _schema_of(scanned: ScanRange, schemas: Mapping[int, bytes]) -> bytes:
    schema = schemas.get(scanned.schema_id)
    if schema is None:
        raise SchemaMismatchError(
            f"log {scanned.log!r} lists rows of schema {scanned.schema_id}, but has no "
            f"schema with this id",
            log=scanned.log,
        )
    return schema


def _records(logs: BlockingLogs, partitions: Sequence[ScanPartition]) -> dict[int, LedgerMetadata]:
    """Read ledger metadata for the tasks.

    At most `RECORDS_MAX` ledgers are chosen. Ledgers that more tasks read are chosen first.
    Metadata of more than `RECORD_SIZE_BYTES_MAX` bytes is omitted.
    """
    readers = Counter(
        ledger_id
        for partition in partitions
        for ledger_id in {scanned.ledger_id for scanned in partition.ranges}
    )
    chosen = [ledger_id for ledger_id, _ in readers.most_common(RECORDS_MAX)]
    records = logs.records(chosen) if chosen else {}
    return {
        ledger_id: record
        for ledger_id, record in records.items()
        if memory_size_bytes(record) <= RECORD_SIZE_BYTES_MAX
    }


def _with_indexes(
    logs: BlockingLogs, scans: list[LogScan], wanted: Sequence[ScanRange], password: bytes
) -> list[LogScan]:
    """Return the scans, with all readable indexes and spans of the ranges in `wanted`."""
    if not wanted:
        return scans
    log_ids = {scan.snapshot.name: scan.snapshot.log_id for scan in scans}
    schemas = {
        (scan.snapshot.name, schema_id): schema
        for scan in scans
        for schema_id, schema in scan.snapshot.schemas.items()
    }
    indexed = [scanned for scanned in wanted if not scanned.is_searched]
    indexes = read_indexes(logs, indexed, log_ids=log_ids, schemas=schemas, password=password)
    spans = {
        scanned.ledger_id: span
        for scanned in wanted
        if scanned.is_searched
        and (span := find_span(logs, scanned, log_id=log_ids[scanned.log], password=password))
    }
    return [replace(scan, indexes=indexes, spans=spans) for scan in scans]


def _schema_in(log: BlockingLog, version: int | None) -> bytes | None:
    if version is not None and (schema := log.snapshot(version).schema) is not None:
        return schema
    # Version 0 has no rows and no schema. A scan reads version 0 as an empty log.
    state = log.state()
    return records_schema() if state.head.content is LogContent.RECORDS else state.schema


def _scans(
    logs: BlockingLogs, options: SourceOptions, pinned: Mapping[str, PinnedLog] | None
) -> list[LogScan]:
    by_time = options.starting_timestamp is not None or options.ending_timestamp is not None
    scans = []
    for log, version in _opened_versions(logs, options, pinned):
        snapshot = with_records_schema(log.snapshot(version))
        newest = snapshot.interval.version
        history = log.history() if options.include_metadata or by_time else ()
        scans.append(
            LogScan(
                snapshot=snapshot,
                history=tuple(version for version in history if version.version <= newest),
            )
        )
    return scans


def _opened_versions(
    logs: BlockingLogs, options: SourceOptions, pinned: Mapping[str, PinnedLog] | None
) -> Iterator[tuple[BlockingLog, int | None]]:
    """Yield the logs to read, each with its version. For the newest version, the number is None."""
    if pinned is None:
        for log in _opened(logs, options):
            yield log, requested_version(logs, log, options)
    else:
        for name, each in pinned.items():
            yield logs.open_by_id(name, each.log_id), each.version


def _opened(logs: BlockingLogs, options: SourceOptions) -> list[BlockingLog]:
    """Open the logs that the options select."""
    selection = options.selection
    names = selection.among(logs.names() if selection.pattern is not None else ())
    if not names:
        raise LogNotFoundError(
            f"no log's whole name matches {options.log_pattern!r}", log=options.log_pattern
        )
    return [logs.open(name) for name in names]
