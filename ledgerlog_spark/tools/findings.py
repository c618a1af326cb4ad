"""Findings of the checks of ledgers and logs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """The severity of a finding.

    `WRONG` means that entries are lost or cannot be found, or that a program wrote wrong metadata.
    `WARNING` means that something must be repaired or started. `NOTE` needs no action.
    """

    WRONG = "wrong"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """One finding of a check.

    Attributes:
        severity: The severity of the finding.
        what: The fault, in plain words.
        advice: What to do; empty if nothing must be done.
        ledger_id: The ledger; None for a finding about a log or about the whole cluster.
        log: The name of the log; None for a finding about a ledger or about the whole cluster.
    """

    severity: Severity
    what: str
    advice: str = ""
    ledger_id: int | None = None
    log: str | None = None
