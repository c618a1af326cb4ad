"""Checks how often a reader retries a busy bookie: as often as its settings state, per entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from tests.sim.checker import require


class ReaderPauses:
    """Counts the pauses of one reader after its last read entry."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pauses = 0

    def check(self, machine: Any, effects: Iterable[Any]) -> None:
        """Check that a machine does not give up a busy bookie too early (PROTOCOL.md#V12)."""
        if not isinstance(machine, LedgerReader):
            return
        for effect in effects:
            if isinstance(effect, m.EntriesRead):
                self._pauses = 0
            elif isinstance(effect, m.StartTimer) and effect.request == machine._busy_timer:
                self._pauses += 1
            elif isinstance(effect, m.LoadMetadata):
                tally = machine._tallies[machine.next_entry_id]
                self._require_patience(machine, is_busy=tally.is_busy)
            elif isinstance(effect, m.ReadFailed) and effect.failure is not m.Failure.NOT_FOUND:
                is_busy = any(code is Code.BUSY for _, code in effect.codes)
                self._require_patience(machine, is_busy=is_busy)

    def _require_patience(self, reader: LedgerReader, *, is_busy: bool) -> None:
        allowed = reader._settings.overload.attempts_max - 1
        said = f"{self._name} gives busy bookies up after {self._pauses} pauses, not {allowed}"
        require(not is_busy or self._pauses >= allowed, "V12", said)
