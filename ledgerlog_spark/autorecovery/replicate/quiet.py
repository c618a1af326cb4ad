"""Measures the time without a new entry in open ledgers, by the monotonic clock of one worker."""

from __future__ import annotations

LEDGERS_MAX = 10_000
"""Maximum number of ledgers that are remembered. If there are more, the ledger that was measured
first is forgotten."""


class QuietLedgers:
    """The last entry of each measured ledger, and the time when this entry was first found."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def measure(self, ledger_id: int, last_entry_id: int, now_ms: float) -> int:
        """Store the last entry of a ledger. Return the time in ms since it was first stored."""
        before = self._seen.get(ledger_id)
        if before is None or before[0] != last_entry_id:
            self._seen.pop(ledger_id, None)
            self._seen[ledger_id] = last_entry_id, now_ms
            while len(self._seen) > LEDGERS_MAX:
                del self._seen[next(iter(self._seen))]
            return 0
        return int(now_ms - before[1])
