"""What each bookie was sent, what it acknowledged, and what it may say afterwards.

Copies are told apart by their stored bytes: an entry that recovery writes back has another header
than the writer's copy. A bookie serves only bytes that somebody sent to it, never an older copy
than the last one that it acknowledged alone, and never denies what it acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import NO_ENTRY, Code

NEVER = 1 << 62
_head = Struct(">qqqq")


def head_of(stored: bytes) -> tuple[int, int, int, int]:
    """Ledger id, entry id, LAC and length in the header of a stored entry."""
    return _head.unpack_from(stored)


@dataclass(slots=True)
class Copy:
    """One send of one entry to one bookie.

    Attributes:
        stored: Header, digest and payload.
        begun: When the bookie got it, counted in calls.
        acked: When the bookie acknowledged it; NEVER while it did not.
    """

    stored: bytes
    begun: int
    acked: int = NEVER


@dataclass(frozen=True, slots=True)
class Promise:
    """What a bookie had acknowledged when a question reached it.

    Attributes:
        last_entry_id: The largest entry.
        lac: The largest LAC, of an entry's header or announced.
        entry_id: That was asked for.
        has_entry: Whether it had acknowledged that one.
        asked: When the question came, counted in calls.
    """

    last_entry_id: int
    lac: int
    entry_id: int
    has_entry: bool
    asked: int


class Copies:
    """All copies of one ledger."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, int], list[Copy]] = {}
        self._last: dict[str, int] = {}
        self._lac: dict[str, int] = {}
        self._now = 0

    def begin(self, bookie: str, request: StoredAdd) -> list[Copy]:
        """A bookie gets an add; the result goes to `acknowledge`."""
        self._now += 1
        sent: list[Copy] = []
        at = 0
        for entry_id, length in zip(request.entry_ids, request.lengths, strict=True):
            copy = Copy(bytes(request.body[at : at + length]), self._now)
            self._copies.setdefault((bookie, entry_id), []).append(copy)
            sent.append(copy)
            at += length
        return sent

    def has_begun(self, bookie: str, request: StoredAdd) -> bool:
        """Whether the bookie got one of the entries before."""
        return any((bookie, entry_id) in self._copies for entry_id in request.entry_ids)

    def acknowledge(self, bookie: str, sent: Sequence[Copy]) -> None:
        """The bookie answered OK."""
        self._now += 1
        for copy in sent:
            copy.acked = self._now
            _, entry_id, lac, _ = head_of(copy.stored)
            self._last[bookie] = max(self._last.get(bookie, NO_ENTRY), entry_id)
            self._lac[bookie] = max(self._lac.get(bookie, NO_ENTRY), lac)

    def lac_acknowledged(self, bookie: str, lac: int) -> None:
        """The bookie answered OK to an announced LAC."""
        self._lac[bookie] = max(self._lac.get(bookie, NO_ENTRY), lac)

    def promise(self, bookie: str, entry_id: int = NO_ENTRY) -> Promise:
        """What the bookie may not deny any more."""
        copies = self._copies.get((bookie, entry_id), ())
        return Promise(
            self._last.get(bookie, NO_ENTRY),
            self._lac.get(bookie, NO_ENTRY),
            entry_id,
            any(copy.acked != NEVER for copy in copies),
            self._now,
        )

    def wrong_bytes(self, bookie: str, stored: bytes, asked: int) -> str:
        """Why the bookie may not serve these bytes; empty when it may.

        Args:
            bookie: That serves them.
            stored: The bytes.
            asked: When the question came; what it acknowledged later need not show.
        """
        _, entry_id, _, _ = head_of(stored)
        copies = self._copies.get((bookie, entry_id), [])
        same = [copy for copy in copies if copy.stored == stored]
        if not same:
            return "bytes that nobody sent to it"
        # A copy that was never acknowledged may still be written, and then it is the newest.
        latest = max(copy.acked for copy in same)
        if any(c.begun > latest and c.acked <= asked for c in copies if c.stored != stored):
            return "an older copy than the last one that it acknowledged"
        return ""

    @staticmethod
    def denied(promise: Promise, code: Code, stored: bytes | None) -> str:
        """What an answer denies of what was acknowledged; empty for nothing."""
        if promise.entry_id == NO_ENTRY:
            last = NO_ENTRY
            if stored is not None:
                _, last, _, _ = head_of(stored)
            if (stored is not None or code.is_absent) and last < promise.last_entry_id:
                return f"says that its last entry is {last}, it acknowledged {promise}"
        elif promise.has_entry and code.is_absent:
            return f"says {code.name}, it acknowledged {promise}"
        return ""
