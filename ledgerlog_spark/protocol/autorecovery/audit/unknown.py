"""Copies whose presence is unknown (AUTORECOVERY.md#N12).

If a bookie does not answer, or may have lost records, it is unknown whether the bookie has its
copies. If they are still unknown after `ROUNDS` rounds, the copies count as missing. Each round
begins at least `ROUND_MS` after the previous round, so the number of rounds replaces a clock. The
first round may begin directly after the check that found the unknown copies.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUND_MS = 600_000
ROUNDS = 6
"""Number of rounds after a check. Copies that are unknown in the check and in all these rounds
count as missing."""
UNKNOWN_MAX = 10_000


@dataclass(frozen=True, slots=True)
class UnknownCopy:
    """Unknown copies of a ledger on a bookie. `entry_id` is None if the whole list is unknown."""

    ledger_id: int
    bookie_id: str
    entry_id: int | None = None


class UnknownCopies:
    """The unknown copies, at most `UNKNOWN_MAX`. The next check finds further unknown copies."""

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
        """Count a round in which the copy stayed unknown; return whether it counts as missing."""
        rounds = self._rounds.pop(copy, 0) + 1
        if rounds < ROUNDS:
            self._rounds[copy] = rounds  # at the end, so the next round begins with other copies
        return rounds >= ROUNDS

    def forget(self, copy: UnknownCopy) -> None:
        """Remove a copy: the bookie has answered, is not registered, or is no longer a member."""
        self._rounds.pop(copy, None)
