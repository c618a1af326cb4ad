"""The metadata tables of a log: `history`, `ranges` and `ledgers`.

`history` has a row for each available version. `ranges` and `ledgers` describe the newest version.
Times are in microseconds, as Spark stores them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerlog_spark.arrow.spark_types import type_text
from ledgerlog_spark.datasource.cluster import metadata_of
from ledgerlog_spark.errors import ConfigurationError, LogKindError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.state.records import LogKind

Rows = list[list[Any]]

ROWS_MAX = 100_000
"""Maximum number of rows of a metadata table. The driver keeps all rows in memory."""

_COLUMNS: dict[str, dict[str, Any]] = {
    "history": {
        "version": "long",
        "operation": "string",
        "committed": "timestamp",
        "start_offset": "long",
        "end_offset": "long",
        "rows": "long",
    },
    "ranges": {
        "ledger_id": "long",
        "first_entry_id": "long",
        "last_entry_id": "long",
        "first_offset": "long",
        "end_offset": "long",
        "size_bytes": "long",
        "has_index": "boolean",
        "newest_row": "timestamp",
    },
    "ledgers": {
        "ledger_id": "long",
        "state": "string",
        "last_entry_id": "long",
        "size_bytes": "long",
        "ensemble_size": "long",
        "write_quorum": "long",
        "ack_quorum": "long",
        "digest": "string",
        "created": "timestamp",
        "bookies": {"type": "array", "elementType": "string", "containsNull": False},
    },
}

MISSING = "MISSING"
"""Value of the column `state` if the log lists the ledger, but the ledger no longer exists."""


def schema_json_of(detail: str) -> str:
    """Return the columns of a metadata table, as Spark's JSON."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in _COLUMNS[detail].items()
    ]
    return type_text({"type": "struct", "fields": fields})


def rows_of(client: BlockingLogClient, log: BlockingLog, detail: str) -> Rows:
    """Return the rows of a metadata table.

    Raises:
        LogKindError: `detail` is "history", and the log is a leader log, which has no versions.
        ConfigurationError: The table has too many rows.
    """
    rows = _ROWS[detail](client, log)
    _check_count(log, detail, len(rows))
    return rows


def _check_count(log: BlockingLog, detail: str, rows: int) -> None:
    if rows > ROWS_MAX:
        raise ConfigurationError(
            f"{log.name}.{detail} has {rows:,} rows, but a metadata table shows at most "
            f"{ROWS_MAX:,}: use `ledgerlog logs`, or let upkeep merge the ranges",
            log=log.name,
            rows=rows,
        )


def _history(_: BlockingLogClient, log: BlockingLog) -> Rows:
    if log.state().head.kind is LogKind.LEADER:
        raise LogKindError(
            f"log {log.name!r} is a leader log, which has no versions: read {log.name}.ranges",
            log=log.name,
        )
    return [
        [
            version.version,
            version.operation.name,
            version.commit_time_ms * 1_000,
            version.start_offset,
            version.end_offset,
            version.rows,
        ]
        for version in log.history()
    ]


def _ranges(_: BlockingLogClient, log: BlockingLog) -> Rows:
    return [
        [
            item.ledger_id,
            item.first_entry_id,
            item.last_entry_id,
            item.first_offset,
            item.end_offset,
            item.size_bytes,
            item.has_index,
            item.newest_ms * 1_000 if item.newest_ms else None,
        ]
        for item in log.snapshot().items
    ]


def _ledgers(client: BlockingLogClient, log: BlockingLog) -> Rows:
    snapshot = log.snapshot()
    listed = [item.ledger_id for item in snapshot.items]
    listed += [ledger.ledger_id for ledger in snapshot.open_ledgers]
    ids = list(dict.fromkeys(listed))
    _check_count(log, "ledgers", len(ids))
    loaded = client.run(lambda connected: metadata_of(connected, ids))
    return [_ledger(*pair) for pair in zip(ids, loaded, strict=True)]


def _ledger(ledger_id: int, metadata: LedgerMetadata | None) -> list[Any]:
    if metadata is None:
        return [ledger_id, MISSING, *[None] * (len(_COLUMNS["ledgers"]) - 2)]
    return [
        ledger_id,
        metadata.state.name,
        metadata.last_entry_id if metadata.is_closed else None,
        metadata.length if metadata.is_closed else None,
        metadata.quorum.ensemble_size,
        metadata.quorum.write_quorum,
        metadata.quorum.ack_quorum,
        metadata.digest_type.name,
        metadata.created_ms * 1_000 if metadata.created_ms >= 0 else None,
        _bookies(metadata),
    ]


def _bookies(metadata: LedgerMetadata) -> list[str]:
    ensembles = (fragment.ensemble for fragment in metadata.fragments)
    return sorted({bookie_id for ensemble in ensembles for bookie_id in ensemble})


_ROWS: dict[str, Callable[[BlockingLogClient, BlockingLog], Rows]] = {
    "history": _history,
    "ranges": _ranges,
    "ledgers": _ledgers,
}
DETAILS = tuple(_ROWS)
"""The names of the metadata tables of a log."""
