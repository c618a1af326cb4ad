"""Answers of replicas about one entry, and pending batches, for readers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.messages import Failure
from ledgerlog_spark.protocol.ledger.recover.reads import Verdict


@dataclass(slots=True, eq=False)
class ReplicaTally:
    """Answers of a write set about one entry; unlike in recovery, *all* must report it absent."""

    entry_id: int
    members: tuple[tuple[int, str], ...]  # (index, bookie id) in the order of requests
    requested: int = 0
    codes: dict[int, Code] = field(default_factory=dict)
    is_slow: bool = False  # undecided at the last tick of the hedge timer

    def take(self, index: int, code: Code) -> None:
        """Record one member's answer."""
        self.codes[index] = code

    def bookie_at(self, index: int) -> str:
        """The bookie at `index`."""
        return dict(self.members)[index]

    @property
    def verdict(self) -> Verdict:
        """PRESENT after one OK, ABSENT after Qw explicit negatives, else UNKNOWN at the end."""
        if Code.OK in self.codes.values():
            return Verdict.PRESENT
        if len(self.codes) < len(self.members):
            return Verdict.UNDECIDED
        absent = all(code.is_absent for code in self.codes.values())
        return Verdict.ABSENT if absent else Verdict.UNKNOWN

    @property
    def is_busy(self) -> bool:
        """Whether a member refused because it has too many requests."""
        return Code.BUSY in self.codes.values()

    @property
    def is_hopeless(self) -> bool:
        """Whether all members answered and none had the entry."""
        return self.verdict in (Verdict.ABSENT, Verdict.UNKNOWN)

    @property
    def failure(self) -> Failure:
        """The failure for the application when the verdict is not PRESENT (PROTOCOL.md#E2)."""
        if self.verdict is Verdict.ABSENT:
            return Failure.ENTRY_ABSENT
        answered = [
            code
            for code in self.codes.values()
            if code not in (Code.TIMEOUT, Code.UNAVAILABLE, Code.BUSY)
        ]
        if answered and all(code is Code.DIGEST_MISMATCH for code in answered):
            return Failure.DIGEST_MISMATCH
        if answered and all(code is Code.UNAUTHORIZED for code in answered):
            return Failure.UNAUTHORIZED
        return Failure.ENTRY_UNKNOWN

    @property
    def codes_by_bookie(self) -> tuple[tuple[str, Code | None], ...]:
        """Each member and its last answer."""
        return tuple((bookie_id, self.codes.get(index)) for index, bookie_id in self.members)


@dataclass(slots=True, eq=False)
class BatchInFlight:
    """Consecutive entries requested from one bookie, and from another when it is slow."""

    next_entry_id: int  # the first that was not received yet
    last_entry_id: int  # inclusive
    order: tuple[int, ...] = ()  # indexes in the order of attempts
    tried: int = 0  # number of indexes tried
    outstanding: int = 0  # requests without an answer
    is_slow: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to request."""
        return self.next_entry_id > self.last_entry_id
