"""Golden cases of the planner: inputs as JSON, so that other planners can read them too.

`python -m tests.unit.datasource.plan_cases --rewrite` rewrites the plans of all cases.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ledgerlog_spark.arrow.stream_codec import IndexedEntry
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.plan import LogScan, plan
from ledgerlog_spark.datasource.scan.plan_json import plan_to_json
from ledgerlog_spark.datasource.scan.ranges import EntrySpan, RangeIndex
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogKind,
    LogSnapshot,
    Operation,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.statistics import ColumnStatistics, encode_statistics

FOLDER = Path(__file__).parents[2] / "golden" / "plan"


def case_paths() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def planned(case: dict[str, Any]) -> dict[str, Any]:
    """The plan of this version for a case's input."""
    logs = [_log(log) for log in case["logs"]]
    options = dict(case["options"])
    parallelism = options.pop("parallelism", 1)
    return plan_to_json(plan(logs, SourceOptions(**options), parallelism=parallelism))


def _log(log: dict[str, Any]) -> LogScan:
    versions = [_version(version) for version in log["history"]]
    chosen = next(v for v in versions if v.version == log["version"])
    snapshot = LogSnapshot(
        log_id=log["log_id"],
        name=log["name"],
        interval=chosen,
        items=tuple(_item(item) for item in log["items"]),
        schemas=dict.fromkeys(log["schemas"], b""),
        kind=LogKind[log.get("kind", "TRANSACTIONAL")],
        content=LogContent[log.get("content", "ROWS")],
    )
    kept = [v for v in versions if v.version >= log.get("oldest_version", 0)]
    ledgers = {int(ledger_id): _ledger(ledger) for ledger_id, ledger in log["ledgers"].items()}
    indexes = {(i["ledger_id"], i["index_entry_id"]): _index(i) for i in log.get("indexes", [])}
    spans = {
        span["ledger_id"]: EntrySpan(
            span["first_entry_id"], span["last_entry_id"], tuple(span["rows"])
        )
        for span in log.get("spans", [])
    }
    return LogScan(snapshot, kept, ledgers, indexes, spans)


def _version(version: dict[str, Any]) -> VersionInterval:
    return VersionInterval(**{**version, "operation": Operation[version["operation"]]})


def _item(item: dict[str, Any]) -> Item:
    stored = {name: value for name, value in item.items() if name != "columns"}
    return Item(**{**stored, "statistics": bytes.fromhex(_statistics(item))})


def _statistics(item: dict[str, Any]) -> str:
    """The stored statistics of the readable columns of a case, in hexadecimal digits."""
    columns = [ColumnStatistics(**column) for column in item.get("columns", [])]
    encoded = encode_statistics(columns, size_bytes_max=1024).hex()
    assert item.get("statistics", encoded) == encoded, item
    return encoded


def _index(index: dict[str, Any]) -> RangeIndex:
    """The content of an index entry: rows, bytes and columns of each entry of its range."""
    entries = [
        IndexedEntry(entry["rows"], entry["size_bytes"], bytes.fromhex(_statistics(entry)))
        for entry in index["entries"]
    ]
    return RangeIndex.of(index["index_entry_id"], entries)


def _ledger(ledger: dict[str, Any]) -> LedgerMetadata:
    fragments = tuple(Fragment(first, tuple(ensemble)) for first, ensemble in ledger["fragments"])
    return LedgerMetadata(Quorum(3, 3, 2), fragments, LedgerState[ledger["state"]])


def main() -> None:
    """Rewrite the plans. `git diff` then shows the effect of a change of the planner."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rewrite", action="store_true", required=True)
    arguments.parse_args()
    for path in case_paths():
        case = json.loads(path.read_text())
        for item in (item for log in case["logs"] for item in log["items"] if "columns" in item):
            item["statistics"] = _statistics(item)
        case["plan"] = planned(case)
        path.write_text(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
