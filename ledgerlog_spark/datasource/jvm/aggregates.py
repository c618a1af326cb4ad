"""Computes aggregates from the list of a log, for queries without groups and filters.

No rows are read, because the list contains exact row counts, and the bounds and null counts of
columns. But a scan would fail or skip rows if a listed ledger was deleted or ends too early, or if
the password is wrong. So the metadata of all ledgers of the scan is checked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import check_ledger_password
from ledgerlog_spark.datasource.cluster import client_of, metadata_of
from ledgerlog_spark.datasource.scan.plan import ScanPlan
from ledgerlog_spark.datasource.scan.planning import PlannedScan
from ledgerlog_spark.datasource.scan.reader import BatchReader
from ledgerlog_spark.datasource.skipping.aggregates import Aggregate, NotExactError, exact_values
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from ledgerlog_spark.errors import UnauthorizedError
from ledgerlog_spark.protocol.log.state.records import Item, LogKind

LEDGERS_CHECKED_MAX = 1_000
"""Maximum number of ledgers that are checked.

If a scan reads more ledgers, Spark runs the scan instead.
"""


def values_of(
    reader: BatchReader,
    scan: PlannedScan,
    requested: Sequence[Mapping[str, Any]],
    password: bytes,
) -> list[Any] | None:
    """Return the values of a request's `aggregates`.

    The result is None if a scan might fail or find other values.
    """
    aggregates = [Aggregate(each["function"], each.get("column")) for each in requested]
    try:
        if all(each.column is None for each in aggregates):
            rows = sum(partition.rows for partition in scan.plan.partitions)
            values: list[Any] = [rows] * len(aggregates)
        else:
            values = exact_values(aggregates, _whole_ranges(scan))
    except NotExactError:
        return None
    return values if _are_readable(reader, scan.plan, password) else None


def _whole_ranges(scan: PlannedScan) -> Iterator[tuple[StoredColumns, Item]]:
    """Yield each range of a scan, with the columns of its rows.

    Raises NotExactError if the scan reads a leader log, or only a part of a range.
    """
    selected: Counter[tuple[str, int]] = Counter()
    for partition in scan.plan.partitions:
        for scanned in partition.ranges:
            selected[scanned.log, scanned.range_offset] += scanned.rows
    for snapshot in scan.snapshots:
        if snapshot.kind is LogKind.LEADER:
            raise NotExactError
        stored: dict[int, StoredColumns] = {}
        for item in snapshot.items:
            rows = selected[snapshot.name, item.first_offset]
            if not rows:
                continue
            if rows != item.rows or item.schema_id not in snapshot.schemas:
                raise NotExactError
            if item.schema_id not in stored:
                schema = snapshot.schemas[item.schema_id]
                stored[item.schema_id] = StoredColumns(schema, include_metadata=False)
            yield stored[item.schema_id], item


def _are_readable(reader: BatchReader, plan: ScanPlan, password: bytes) -> bool:
    """Whether all ledgers of a plan exist, contain their listed entries and have this password.

    The entries of an open ledger are not checked.
    """
    ends: dict[int, int] = {}
    for partition in plan.partitions:
        for scanned in partition.ranges:
            ends[scanned.ledger_id] = max(ends.get(scanned.ledger_id, 0), scanned.last_entry_id)
    if len(ends) > LEDGERS_CHECKED_MAX:
        return False

    async def are_readable(client: LedgerClient) -> bool:
        loaded = await metadata_of(client, list(ends))
        for (ledger_id, end), metadata in zip(ends.items(), loaded, strict=True):
            if metadata is None:
                return False
            check_ledger_password(ledger_id, metadata, password)
            if metadata.is_closed and metadata.last_entry_id < end:
                return False
        return True

    try:
        return client_of(reader.uri).run(are_readable)
    except UnauthorizedError:
        return False
