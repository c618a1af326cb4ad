"""Stores which rows the first query of a table reads, so that later queries read the same rows.

Spark keeps the plan of a Python source for all queries of a DataFrame. But the JVM engine plans
each query separately. So the first answer of the planner contains a text that names the chosen
rows. Later requests for the same table contain this text. Only this module interprets the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PINNED_OPTION = "__pinned"
"""Name of the option that passes this text to the Python source. Users do not see this option."""


@dataclass(frozen=True, slots=True)
class PinnedLog:
    """The rows of one log that a query reads.

    Attributes:
        log_id: Id of the log. A re-created log of the same name has another id.
        version: Number of the version, or None for a leader log, which has no versions.
        start_offset: The offset of the first row that the query reads.
        end_offset: The offset after the last row that the query reads.
    """

    log_id: str
    version: int | None
    start_offset: int
    end_offset: int


def text_of_logs(pinned: Mapping[str, PinnedLog]) -> str:
    """Encode the rows that a scan of logs reads."""
    return json.dumps({name: asdict(each) for name, each in pinned.items()}, separators=(",", ":"))


def logs_in(text: str) -> dict[str, PinnedLog]:
    """Decode the result of `text_of_logs`."""
    logs: dict[str, dict[str, Any]] = json.loads(text)
    return {name: PinnedLog(**each) for name, each in logs.items()}


def text_of_ledger(last_entry_id: int) -> str:
    """Encode the last entry that a scan of one ledger reads."""
    return json.dumps(last_entry_id)


def last_entry_in(text: str) -> int:
    """Decode the result of `text_of_ledger`."""
    return int(json.loads(text))
