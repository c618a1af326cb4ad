"""Findings of the checks of ledgers and logs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """The severity of a finding.

    `WRONG` means that entries are lost or cannot be found, or that a program wrote wrong metadata.
    `WARNING` means that an operator must repair or start something. `NOTE` means that no action is
    necessary.
    """

    WRONG = "wrong"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """One finding of a check.

    Attributes:
        severity: The severity of the finding.
        what: A text that describes the fault.
        advice: A text that describes what to do; empty if nothing must be done.
        ledger_id: Id of the ledger, or None if the finding is about a log or the whole cluster.
        log: Name of the log, or None if the finding is about a ledger or the whole cluster.
    """

    severity: Severity
    what: str
    advice: str = ""
    ledger_id: int | None = None
    log: str | None = None
