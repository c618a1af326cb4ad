"""The JSON form of a plan, which the golden cases hold and other planners reproduce.

{"format": 3, "versions": {log: version},
 "ledgers": {id: {"state": "OPEN", "fragments": [[first entry, [bookie, ...]], ...]}},
 "partitions": [[{one range: the fields of `ScanRange`}, ...], ...]}
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.datasource.scan.plan import PLAN_FORMAT

if TYPE_CHECKING:
    from ledgerlog_spark.datasource.scan.plan import ScanPlan
    from ledgerlog_spark.model import LedgerMetadata


def plan_to_json(plan: ScanPlan) -> dict[str, Any]:
    """The plan as values that `json.dumps` takes."""
    return {
        "format": PLAN_FORMAT,
        "versions": dict(plan.versions),
        "ledgers": {
            str(ledger_id): ledger_to_json(metadata)
            for ledger_id, metadata in sorted(plan.ledgers.items())
        },
        "partitions": [
            [asdict(scanned) for scanned in partition.ranges] for partition in plan.partitions
        ],
    }


def ledger_to_json(metadata: LedgerMetadata) -> dict[str, Any]:
    """What a reader needs of a ledger: its state, and where its entries are."""
    return {
        "state": metadata.state.name,
        "fragments": [
            [fragment.first_entry_id, list(fragment.ensemble)] for fragment in metadata.fragments
        ],
    }
