"""The JSON form of a `ScanPlan`, which the JVM engine reads.

The plans in `tests/golden/plan` have this form. The format number changes when the meaning of a
field changes. A reader ignores unknown fields.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ledgerlog_spark.datasource.scan.plan import ScanPlan
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.model import LedgerMetadata

PLAN_FORMAT = 3


def plan_to_json(plan: ScanPlan) -> dict[str, Any]:
    """Return the plan as values that `json.dumps` accepts."""
    return {
        "format": PLAN_FORMAT,
        "versions": dict(plan.versions),
        "ledgers": {
            str(ledger_id): ledger_to_json(metadata)
            for ledger_id, metadata in sorted(plan.ledgers.items())
        },
        "partitions": [
            [_range_to_json(scanned) for scanned in partition.ranges]
            for partition in plan.partitions
        ],
    }


def _range_to_json(scanned: ScanRange) -> dict[str, Any]:
    fields = asdict(scanned)
    del fields["index_entries"]  # this field was needed only to choose slices
    return fields


def ledger_to_json(metadata: LedgerMetadata) -> dict[str, Any]:
    """Return the state of a ledger, and the bookies with its entries."""
    return {
        "state": metadata.state.name,
        "fragments": [
            [fragment.first_entry_id, list(fragment.ensemble)] for fragment in metadata.fragments
        ],
    }
