"""Collects the answers of the bookies about one entry that a reader requested."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.recover.reads import Verdict


@dataclass(slots=True, eq=False)
class ReplicaTally:
    """The answers of a write set about one entry.

    The entry is absent only if *all* bookies report it absent. In recovery, fewer reports are
    enough.
    """

    entry_id: int
    members: tuple[tuple[int, str], ...]  # (index, bookie id) in the order of requests
    requested: int = 0
    codes: dict[int, Code] = field(default_factory=dict)
    is_slow: bool = False  # the entry was undecided when the hedge timer last fired

    @property
    def verdict(self) -> Verdict:
        """The verdict from the answers so far. One answer OK makes the verdict PRESENT.

        If no answer is OK, the verdict is UNDECIDED until all Qw bookies have answered. Then the
        verdict is ABSENT if every bookie reports the entry absent. Otherwise it is UNKNOWN.
        """
        if Code.OK in self.codes.values():
            return Verdict.PRESENT
        if len(self.codes) < len(self.members):
            return Verdict.UNDECIDED
        absent = all(code.is_absent for code in self.codes.values())
        return Verdict.ABSENT if absent else Verdict.UNKNOWN

    @property
    def is_busy(self) -> bool:
        """Whether a bookie refused the request, because it has too many requests."""
        return Code.BUSY in self.codes.values()

    @property
    def is_hopeless(self) -> bool:
        """Whether all bookies of the write set answered, and no bookie had the entry."""
        return self.verdict in (Verdict.ABSENT, Verdict.UNKNOWN)

    @property
    def failure(self) -> m.Failure:
        """The failure for the application when the verdict is not PRESENT (PROTOCOL.md#E2)."""
        if self.verdict is Verdict.ABSENT:
            return m.Failure.ENTRY_ABSENT
        answered = [
            code
            for code in self.codes.values()
            if code not in (Code.TIMEOUT, Code.UNAVAILABLE, Code.BUSY)
        ]
        if answered and all(code is Code.DIGEST_MISMATCH for code in answered):
            return m.Failure.DIGEST_MISMATCH
        if answered and all(code is Code.UNAUTHORIZED for code in answered):
            return m.Failure.UNAUTHORIZED
        return m.Failure.ENTRY_UNKNOWN
