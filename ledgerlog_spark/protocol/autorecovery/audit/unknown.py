"""Copies whose presence is unknown (AUTORECOVERY.md#N12).

If a bookie does not answer, or may have lost records, it is unknown whether the bookie has its
copies. After `ROUNDS` rounds in this state, the copies count as missing. Each round begins at least
`ROUND_MS` after the round before, so no clock is needed. The first round may begin directly after
the check that found the copies.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUND_MS = 600_000
ROUNDS = 6
"""Copies that are unknown in a check, and in this number of rounds after it, count as missing."""
UNKNOWN_MAX = 10_000


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """Unknown copies of a ledger on a bookie. `entry_id` is None if the whole list is unknown."""

    ledger_id: int
    bookie_id: str
    entry_id: int | None = None


class UnknownCopies:
    """At most `UNKNOWN_MAX` copies. The next check finds the others."""

    def __init__(self) -> None:
        self._rounds: dict[UnknownCopy, int] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def pending(self) -> tuple[UnknownCopy, ...]:
        """All copies that are unknown."""
        return tuple(self._rounds)

    def note(self, copy: UnknownCopy) -> None:
        """Add a copy whose presence a check could not determine."""
        if len(self._rounds) < UNKNOWN_MAX:
            self._rounds.setdefault(copy, 0)

    def still(self, copy: UnknownCopy) -> bool:
        """Count a round without an answer. Return whether the copy now counts as missing."""
        rounds = self._rounds.pop(copy, 0) + 1
        if rounds < ROUNDS:
            self._rounds[copy] = rounds  # now last, so the next round begins with the others
        return rounds >= ROUNDS

    def forget(self, copy: UnknownCopy) -> None:
        """The bookie has answered, is not registered, or is not named any more."""
        self._rounds.pop(copy, None)
