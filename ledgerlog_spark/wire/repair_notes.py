"""The notes of auto-recovery in nodes that only ledgerlog reads and writes (WIRE.md#repair-nodes).

Apache BookKeeper refuses unknown fields in its own nodes. So each note is stored in a separate
node, outside the ledgers root.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EntryRange = tuple[int, int]
"""The first and the last entry id of a range, both inclusive."""

WHOLE_LEDGER: Final = -1
"""Value of a `first_entry_id` that means all fragments of the ledger, not one fragment."""
HOLES_MAX: Final = 200
RANGES_MAX: Final = 32
MOVES_MAX: Final = 200


class HoleKind(StrEnum):
    """The reason why a registered bookie needs a copy: it has no copy, or its copy is damaged."""

    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """The copies that a member of a fragment should have, but lacks or has only damaged.

    Attributes:
        bookie_id: Bookie id of the member. "" means every member.
        first_entry_id: First entry of the fragment, or `WHOLE_LEDGER`.
        kind: Reason why the member needs the copies.
        ranges: The entries of the hole, at most `RANGES_MAX` ranges. If this list is empty, the
            hole consists of every entry of the fragment that the member should have.
    """

    bookie_id: str
    first_entry_id: int = WHOLE_LEDGER
    kind: HoleKind = HoleKind.MISSING
    ranges: tuple[EntryRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Holes:
    """The holes of one ledger: a note of `<root>-repair/holes`."""

    holes: tuple[Hole, ...]

    @classmethod
    def of(cls, holes: Iterable[Hole]) -> Holes:
        """Return a note with the union of these holes.

        Holes of the same member, fragment and kind are joined. If a hole would have more than
        `RANGES_MAX` ranges, it becomes a hole of the whole fragment. If there are more than
        `HOLES_MAX` holes, the note has one hole for each kind instead, which means every member and
        every fragment. So a note may list more entries than were found, but never fewer.
        """
        joined: dict[tuple[str, int, HoleKind], tuple[EntryRange, ...]] = {}
        for hole in holes:
            key = hole.bookie_id, hole.first_entry_id, hole.kind
            joined[key] = _union(joined.get(key), hole.ranges)
        if len(joined) <= HOLES_MAX:
            return cls(tuple(sorted(Hole(*key, ranges) for key, ranges in joined.items())))
        kinds = {kind for _, _, kind in joined}
        return cls(tuple(Hole("", WHOLE_LEDGER, kind) for kind in sorted(kinds)))

    def merged(self, other: Holes) -> Holes:
        """Return the union of two notes."""
        return Holes.of((*self.holes, *other.holes))


class MoveReason(StrEnum):
    """The reason why a readable copy must move to another bookie."""

    DRAIN = "drain"
    DECOMMISSION = "decommission"
    RECOVER = "recover"
    PLACEMENT = "placement"


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A copy that must move: its bookie, its fragment (or `WHOLE_LEDGER`), and the reason."""

    bookie_id: str
    first_entry_id: int = WHOLE_LEDGER
    reason: MoveReason = MoveReason.DRAIN


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of one ledger: a note of `<root>-repair/moves`."""

    moves: tuple[Move, ...]

    @classmethod
    def of(cls, moves: Iterable[Move]) -> Moves:
        """Return a note with these moves, each once.

        If there are more than `MOVES_MAX` moves, each bookie gets one move of the whole ledger
        instead. If there are still more than `MOVES_MAX` moves, the note has only the first
        `MOVES_MAX` moves. The next walk of the vacation adds the missing moves again.
        """
        union = sorted(set(moves))
        if len(union) > MOVES_MAX:
            whole = {
                move.bookie_id: Move(move.bookie_id, WHOLE_LEDGER, move.reason) for move in union
            }
            union = sorted(whole.values())
        return cls(tuple(union[:MOVES_MAX]))

    def merged(self, other: Moves) -> Moves:
        """Return the union of two notes."""
        return Moves.of((*self.moves, *other.moves))


@dataclass(frozen=True, slots=True, order=True)
class UnreadableRange:
    """Entries without a readable copy.

    Attributes:
        first_entry_id: First entry.
        last_entry_id: Last entry, inclusive.
        is_lost: Whether every bookie of the write set denied the entries twice, before and after a
            sync. If `is_lost` is false, it is unknown whether a copy exists.
        answers: The answers of the bookies, as pairs of the bookie id and the value of its `Code`.
    """

    first_entry_id: int
    last_entry_id: int
    is_lost: bool
    answers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The unreadable entries of one ledger: a note of `<root>-repair/unreadable`.

    A newer note replaces an older note. `found_ms` is only displayed to people.
    """

    ranges: tuple[UnreadableRange, ...]
    found_by: str = ""
    found_ms: int = 0

    def merged(self, other: Unreadable) -> Unreadable:
        """Return the newer note."""
        return other


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failed attempts to heal one ledger: a note of `<root>-repair/attempts`.

    Attributes:
        count: Number of attempts in a row that failed.
        refusal: The reason why the newest attempt failed, as a word such as `no_spare`.
        detail: A sentence for the operator.
        worker: The worker of the newest attempt.
        tried_ms: Time of the newest attempt by the worker's clock. It is only displayed to people.
        retry_after_ms: Time in milliseconds from the newest attempt to the next attempt.
    """

    count: int
    refusal: str
    detail: str = ""
    worker: str = ""
    tried_ms: int = 0
    retry_after_ms: int = 0

    def merged(self, other: FailedAttempts) -> FailedAttempts:
        """Return the newer note."""
        return other


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The current task of a worker: its ledger, queue (`mark`, `hole`, `move`) and progress."""

    ledger_id: int
    queue: str
    entries_done: int = 0
    entries_total: int = 0
    bytes_copied: int = 0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The progress of one worker: an ephemeral node in `<root>-repair/workers`.

    Attributes:
        tasks: The current tasks of the worker, at most 1,000.
        ledgers_healed: Number of ledgers that this run of the worker healed.
        entries_copied: Number of entries that this run copied.
        bytes_copied: Number of bytes that this run copied.
        bytes_per_second: Number of bytes copied per second since the last report.
        bytes_per_second_max: Maximum of `bytes_per_second`; 0 if there is no limit.
        state: State of the worker: `working`, `idle`, `disabled` or `waiting`.
        reported_ms: Time of the report by the worker's clock. It is only displayed to people.
    """

    tasks: tuple[WorkerTask, ...] = ()
    ledgers_healed: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    bytes_per_second: int = 0
    bytes_per_second_max: int = 0
    state: str = "idle"
    reported_ms: int = 0


class VacationKind(StrEnum):
    """The command that began a vacation."""

    DRAIN = "drain"
    DECOMMISSION = "decommission"
    RECOVER = "recover"


class VacationPhase(StrEnum):
    """Phase of a vacation: writers leave, then copies move, then no ledger names the bookie."""

    DRAINING = "draining"
    VACATING = "vacating"
    VACATED = "vacated"


@dataclass(frozen=True, slots=True, order=True)
class BlockedLedger:
    """A ledger whose copies a vacation cannot move yet, and the reason."""

    ledger_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Vacation:
    """The state of a bookie that is taken out of service: a node in `<root>-repair/bookies`.

    Attributes:
        kind: The command that began the vacation.
        phase: The current phase of the vacation.
        begun_by: The operator who began the vacation, and the computer on which the command ran.
        begun_ms: Time of the command by the operator's clock. It is only displayed to people.
        ledgers_total: Number of ledgers that named the bookie at the first walk; -1 before this
            walk.
        ledgers_left: Number of ledgers that named the bookie at the newest walk; -1 before the
            first walk.
        bytes_total: Estimated bytes of these ledgers on the bookie (length x Qw / E) at the first
            walk; -1 before this walk.
        bytes_left: Estimated bytes of these ledgers on the bookie at the newest walk; -1 before the
            first walk.
        blocked: The first ledgers whose copies cannot move now, at most 1,000.
        blocked_count: Number of all ledgers whose copies cannot move now.
        detail: A sentence for the operator: the reason why the vacation waits.
        returns: Number of starts of the bookie during the vacation.
        walks: Number of finished walks of the vacation.
    """

    kind: VacationKind
    phase: VacationPhase
    begun_by: str = ""
    begun_ms: int = 0
    ledgers_total: int = -1
    ledgers_left: int = -1
    bytes_total: int = -1
    bytes_left: int = -1
    blocked: tuple[BlockedLedger, ...] = ()
    blocked_count: int = 0
    detail: str = ""
    returns: int = 0
    walks: int = 0

    @property
    def is_over(self) -> bool:
        """Whether no ledger names the bookie any more."""
        return self.phase is VacationPhase.VACATED

    @property
    def forbids_starts(self) -> bool:
        """Whether the bookie must not start any more (AUTORECOVERY.md#Y8)."""
        return self.is_over and self.kind is VacationKind.DECOMMISSION


def _union(
    before: tuple[EntryRange, ...] | None, ranges: tuple[EntryRange, ...]
) -> tuple[EntryRange, ...]:
    """Return the union of two sets of ranges.

    An empty set means all entries of the fragment. If `before` is None, it means no entries.
    """
    if before is None:
        before = ranges
    if not before or not ranges:
        return ()
    joined: list[EntryRange] = []
    for first, last in sorted((*before, *ranges)):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined) if len(joined) <= RANGES_MAX else ()
