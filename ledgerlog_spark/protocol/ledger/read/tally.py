"""Answers of replicas about one entry, and pending batches, for readers."""

from __future__ import annotations

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.messages import Failure
from ledgerlog_spark.protocol.ledger.recover.reads import Verdict


class ReplicaTally:
    """Answers of a write set about one entry; unlike in recovery, *all* must report it absent."""

    __slots__ = ("codes", "entry_id", "is_slow", "members", "requested")

    def __init__(self, entry_id: int, members: tuple[tuple[int, str], ...]) -> None:
        self.entry_id = entry_id
        self.members = members  # (index, bookie id) in the order of requests
        self.requested = 0
        self.codes: dict[int, Code] = {}
        self.is_slow = False  # undecided at the last tick of the hedge timer

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


class BatchInFlight:
    """Consecutive entries requested from one bookie, and from another when it is slow."""

    __slots__ = ("is_slow", "last_entry_id", "next_entry_id", "order", "outstanding", "tried")

    def __init__(self, first_entry_id: int, last_entry_id: int) -> None:
        self.next_entry_id = first_entry_id  # the first that was not received yet
        self.last_entry_id = last_entry_id  # inclusive
        self.order: tuple[int, ...] = ()  # indexes in the order of attempts
        self.tried = 0  # number of indexes tried
        self.outstanding = 0  # requests without an answer
        self.is_slow = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to request."""
        return self.next_entry_id > self.last_entry_id
