"""The rows that the first query of a table reads, so that its later queries read the same rows.

Spark keeps the plan of a Python source for all queries of a DataFrame. But the JVM engine plans
each query separately. So the first answer of the planner has a text with the rows that were chosen,
and the later requests of the same table contain this text. Other code treats the text as opaque.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PINNED_OPTION = "__pinned"
"""The option that brings the text to the Python source. Users cannot see it."""


@dataclass(frozen=True, slots=True)
class PinnedLog:
    """The rows of one log.

    Attributes:
        log_id: Id of the log. A re-created log of the same name has another id.
        version: None for a leader log, which has no versions.
        start_offset: The offset of the first row.
        end_offset: The offset after the last row.
    """

    log_id: str
    version: int | None
    start_offset: int
    end_offset: int


def text_of_logs(pinned: Mapping[str, PinnedLog]) -> str:
    """The text of a scan of logs."""
    return json.dumps({name: asdict(each) for name, each in pinned.items()}, separators=(",", ":"))


def logs_in(text: str) -> dict[str, PinnedLog]:
    """The logs in the text of a scan of logs."""
    logs: dict[str, dict[str, Any]] = json.loads(text)
    return {name: PinnedLog(**each) for name, each in logs.items()}


def text_of_ledger(last_entry_id: int) -> str:
    """The text of a scan of one ledger up to this entry."""
    return json.dumps(last_entry_id)


def last_entry_in(text: str) -> int:
    """The last entry in the text of a scan of one ledger."""
    return int(json.loads(text))
