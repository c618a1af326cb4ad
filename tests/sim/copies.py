"""What each bookie got and acknowledged, and what it may answer after that.

Copies are distinguished by their stored bytes: an entry that recovery writes back has another
header than the writer's copy. A bookie serves only bytes that were sent to it, and never a copy
that is older than the last copy that it acknowledged. It never denies that an acknowledged entry
exists.
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
    """One copy of an entry that was sent to a bookie.

    Attributes:
        stored: Header, digest and payload.
        begun: Number of the call with which the bookie got the copy.
        acked: Number of the call with which the bookie acknowledged it; NEVER before this.
    """

    stored: bytes
    begun: int
    acked: int = NEVER


@dataclass(frozen=True, slots=True)
class Promise:
    """What a bookie had acknowledged when it got a read.

    Attributes:
        last_entry_id: The largest acknowledged entry id.
        lac: The largest acknowledged LAC, from the header of an entry or announced.
        entry_id: The requested entry.
        has_entry: Whether the bookie had acknowledged the requested entry.
        asked: Number of the call with which the bookie got the read.
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
        """Record that a bookie gets an add. The result is the argument of `acknowledge`."""
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
        """Whether the bookie got any of these entries before."""
        return any((bookie, entry_id) in self._copies for entry_id in request.entry_ids)

    def acknowledge(self, bookie: str, sent: Sequence[Copy]) -> None:
        """Record that the bookie answered OK to these copies."""
        self._now += 1
        for copy in sent:
            copy.acked = self._now
            _, entry_id, lac, _ = head_of(copy.stored)
            self._last[bookie] = max(self._last.get(bookie, NO_ENTRY), entry_id)
            if lac < entry_id:  # the larger LAC in a copy of Apache's worker is no promise
                self._lac[bookie] = max(self._lac.get(bookie, NO_ENTRY), lac)

    def lac_acknowledged(self, bookie: str, lac: int) -> None:
        """Record that the bookie answered OK to an announced LAC."""
        self._lac[bookie] = max(self._lac.get(bookie, NO_ENTRY), lac)

    def promise(self, bookie: str, entry_id: int = NO_ENTRY) -> Promise:
        """Return what the bookie must not deny from now on."""
        copies = self._copies.get((bookie, entry_id), ())
        return Promise(
            self._last.get(bookie, NO_ENTRY),
            self._lac.get(bookie, NO_ENTRY),
            entry_id,
            any(copy.acked != NEVER for copy in copies),
            self._now,
        )

    def wrong_bytes(self, bookie: str, stored: bytes, asked: int) -> str:
        """Return why the bookie must not serve these bytes; empty if it may serve them.

        Args:
            bookie: The bookie that serves the bytes.
            stored: The bytes.
            asked: Number of the call with the read. Copies acknowledged later need not be served.
        """
        _, entry_id, _, _ = head_of(stored)
        copies = self._copies.get((bookie, entry_id), [])
        same = [copy for copy in copies if copy.stored == stored]
        if not same:
            return "bytes that nobody sent to it"
        # A copy that was never acknowledged may have been written, and may be the newest.
        latest = max(copy.acked for copy in same)
        if any(c.begun > latest and c.acked <= asked for c in copies if c.stored != stored):
            return "an older copy than the last one that it acknowledged"
        return ""

    @staticmethod
    def denied(promise: Promise, code: Code, stored: bytes | None) -> str:
        """Return what an answer wrongly denies; empty if it denies nothing acknowledged."""
        if promise.entry_id == NO_ENTRY:
            last = NO_ENTRY
            if stored is not None:
                _, last, _, _ = head_of(stored)
            if (stored is not None or code.is_absent) and last < promise.last_entry_id:
                return f"says that its last entry is {last}, it acknowledged {promise}"
        elif promise.has_entry and code.is_absent:
            return f"says {code.name}, it acknowledged {promise}"
        return ""
