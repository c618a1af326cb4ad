"""Copies of which it is unknown whether they are there (AUTORECOVERY.md#N12).

A bookie that does not answer, or that may have lost records, says nothing about its copies. Only if
this lasts for an hour, the copies count as missing. The time is counted in rounds, each of which
begins at least `ROUND_MS` after the last one. So no clock is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUND_MS = 600_000
ROUNDS = 6
"""Copies that are unknown in a check, and in this number of rounds after it, count as missing."""
UNKNOWN_MAX = 10_000


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """Copies of a ledger on a bookie; `entry_id` None if the list of the entries is unknown."""

    ledger_id: int
    bookie_id: str
    entry_id: int | None = None


class UnknownCopies:
    """At most `UNKNOWN_MAX` copies. Further ones are left to the next check."""

    def __init__(self) -> None:
        self._rounds: dict[UnknownCopy, int] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def pending(self) -> tuple[UnknownCopy, ...]:
        """All copies that are unknown."""
        return tuple(self._rounds)

    def note(self, copy: UnknownCopy) -> None:
        """A check did not learn about this copy."""
        if len(self._rounds) < UNKNOWN_MAX:
            self._rounds.setdefault(copy, 0)

    def still(self, copy: UnknownCopy) -> bool:
        """A round did not learn about it either. Return whether it counts as missing now."""
        rounds = self._rounds.pop(copy, 0) + 1
        if rounds < ROUNDS:
            self._rounds[copy] = rounds  # after the others, which the next round looks at first
        return rounds >= ROUNDS

    def forget(self, copy: UnknownCopy) -> None:
        """The bookie has answered, is not registered, or is not named any more."""
        self._rounds.pop(copy, None)
