"""What the driver asks of the cluster to plan a scan; the planning itself is `plan` (design 7)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.datasource.index_entries import read_indexes
from ledgerlog_spark.datasource.plan import LogScan, ScanOptions, indexes_wanted, plan
from ledgerlog_spark.datasource.scan_task import ScanTask
from ledgerlog_spark.datasource.schemas import raw_schema, scan_schema
from ledgerlog_spark.errors import LogNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.datasource.filters import Predicate
    from ledgerlog_spark.datasource.options import ReadOptions
    from ledgerlog_spark.datasource.plan import ScanRange
    from ledgerlog_spark.log.blocking import BlockingLog


def schema_of(options: ReadOptions, uri: str) -> str:
    """The schema of a scan, as JSON.

    Raises:
        LogNotFoundError: No such log.
        SchemaMismatchError: No log that is read has columns yet.
        VersionNotAvailableError: `versionAsOf` names a version that is gone or never was.
        ConfigurationError: `columns` names a column that is not there.
    """
    if options.ledger_id is not None:
        return raw_schema()
    return scan_schema(
        [(log.name, _schema_in(log, options.version_as_of)) for log in _logs(uri, options)],
        columns=options.columns,
        include_metadata=options.include_metadata,
    )


def tasks_of(
    options: ReadOptions,
    uri: str,
    predicates: Sequence[Predicate],
    *,
    parallelism: int = 1,
    password: bytes = b"",
) -> list[ScanTask]:
    """The tasks of a scan; the snapshot is that of this moment.

    Args:
        options: What to read.
        uri: Of the cluster.
        predicates: To skip ranges and entries by.
        parallelism: Tasks that run at once; counts where `minPartitions` is not given.
        password: Of the ledgers, whose index entries may be read.

    Raises:
        LogNotFoundError: No such log.
        VersionNotAvailableError: `versionAsOf` names a version that is gone or never was.
        ConfigurationError: Offsets that the log does not have.
        DataLossError: Offsets of rows that are gone, unless `failOnDataLoss` is false.
    """
    scans = _scans(uri, options)
    scan_options = ScanOptions(
        starting_offsets=options.starting_offsets,
        ending_offsets=options.ending_offsets,
        fail_on_data_loss=options.fail_on_data_loss,
        max_bytes_per_partition=options.max_bytes_per_partition,
        min_partitions=options.min_partitions or 1,
        parallelism=parallelism if options.min_partitions is None else 1,
        max_records_per_partition=options.max_records_per_partition,
    )
    scans = _with_indexes(uri, scans, indexes_wanted(scans, scan_options, predicates), password)
    log_ids = {scan.snapshot.name: scan.snapshot.log_id for scan in scans}
    schemas = {scan.snapshot.name: scan.snapshot.schemas for scan in scans}
    return [
        ScanTask(
            ranges=partition.ranges,
            log_ids={scanned.log: log_ids[scanned.log] for scanned in partition.ranges},
            schemas={
                (scanned.log, scanned.schema_id): schemas[scanned.log][scanned.schema_id]
                for scanned in partition.ranges
            },
            include_metadata=options.include_metadata,
            predicates=tuple(predicates),
        )
        for partition in plan(scans, scan_options, predicates).partitions
    ]


def _with_indexes(
    uri: str, scans: list[LogScan], wanted: Sequence[ScanRange], password: bytes
) -> list[LogScan]:
    """The scans with the indexes of the ranges `wanted`, as far as they can be read."""
    if not wanted:
        return scans
    log_ids = {scan.snapshot.name: scan.snapshot.log_id for scan in scans}
    schemas = {
        (scan.snapshot.name, schema_id): schema
        for scan in scans
        for schema_id, schema in scan.snapshot.schemas.items()
    }
    indexes = read_indexes(uri, wanted, log_ids=log_ids, schemas=schemas, password=password)
    return [replace(scan, indexes=indexes) for scan in scans]


def _schema_in(log: BlockingLog, version: int | None) -> bytes | None:
    if version is not None and (schema := log.snapshot(version).schema) is not None:
        return schema
    # Also for version 0: it has no rows and no schema, and reads as the empty log that it was.
    return log.state().schema


def _scans(uri: str, options: ReadOptions) -> list[LogScan]:
    scans = []
    for log in _logs(uri, options):
        snapshot = log.snapshot(options.version_as_of)
        scans.append(
            LogScan(
                snapshot=snapshot,
                columns={
                    schema_id: tuple(decode_schema(schema).names)
                    for schema_id, schema in snapshot.schemas.items()
                },
                history=log.history() if options.include_metadata else (),
            )
        )
    return scans


def _logs(uri: str, options: ReadOptions) -> list[BlockingLog]:
    """Handles of the logs that the options name."""
    logs = logs_at(uri)
    names: Sequence[str] = options.log_names
    if options.log_pattern is not None:
        wanted = re.compile(options.log_pattern)
        names = [name for name in logs.names() if wanted.fullmatch(name)]
        if not names:
            raise LogNotFoundError(
                f"no log's whole name matches {options.log_pattern!r}", log=options.log_pattern
            )
    return [logs.open(name) for name in names]
