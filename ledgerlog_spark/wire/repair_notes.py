"""The notes of auto-recovery in nodes that only ledgerlog reads and writes (WIRE.md#repair-nodes).

Apache BookKeeper refuses unknown fields in its own nodes, so these notes have nodes of their own,
outside the ledgers root.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EntryRange = tuple[int, int]
"""The first and the last entry id of a range, both inclusive."""

WHOLE_LEDGER: Final = -1
"""Stands for all fragments of the ledger, in place of the first entry of a fragment."""
HOLES_MAX: Final = 200
RANGES_MAX: Final = 32
MOVES_MAX: Final = 200


class HoleKind(StrEnum):
    """Why a registered bookie needs a copy: it lacks the copy, or its copy is damaged."""

    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """A member of a fragment that lacks copies which it should hold.

    Attributes:
        bookie_id: The member. "" stands for every member.
        first_entry_id: First entry of the fragment, or `WHOLE_LEDGER`.
        kind: Why the member needs the copies.
        ranges: The known entries, at most `RANGES_MAX` ranges. If this list is empty, the hole is
            every entry of the fragment that the member should hold.
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
        """The union of holes, within the bounds of a note.

        Holes of the same member, fragment and kind are joined. Above `RANGES_MAX` ranges, a hole
        is the whole fragment. Above `HOLES_MAX` holes, the note has one hole for each kind, which
        stands for every member and every fragment. So a note may list more entries than were found,
        but never fewer.
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
        """The union of two notes."""
        return Holes.of((*self.holes, *other.holes))


class MoveReason(StrEnum):
    """Why a readable copy must move to another bookie."""

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
        """The union of both notes, with at most the number of moves that a note may have.

        Above `MOVES_MAX` moves, each bookie has one move of the whole ledger. If there are still
        too many moves, only the first moves are kept, and the next walk of the vacation adds the
        others again.
        """
        union = sorted(set(moves))
        if len(union) > MOVES_MAX:
            whole = {
                move.bookie_id: Move(move.bookie_id, WHOLE_LEDGER, move.reason) for move in union
            }
            union = sorted(whole.values())
        return cls(tuple(union[:MOVES_MAX]))

    def merged(self, other: Moves) -> Moves:
        """The union of two notes."""
        return Moves.of((*self.moves, *other.moves))


@dataclass(frozen=True, slots=True, order=True)
class UnreadableRange:
    """Entries without a readable copy.

    Attributes:
        first_entry_id: First entry.
        last_entry_id: Last entry, inclusive.
        is_lost: Whether every bookie of the write set denied the entry twice: before and after a
            sync. If not, it is unknown whether a copy exists.
        answers: The code of each bookie's answer, as pairs of the bookie id and the value of
            `Code`.
    """

    first_entry_id: int
    last_entry_id: int
    is_lost: bool
    answers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The unreadable entries of one ledger: a note of `<root>-repair/unreadable`.

    The newest note replaces the older one. `found_ms` is only for people.
    """

    ranges: tuple[UnreadableRange, ...]
    found_by: str = ""
    found_ms: int = 0

    def merged(self, other: Unreadable) -> Unreadable:
        """The newer note."""
        return other


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failed attempts to heal one ledger: a note of `<root>-repair/attempts`.

    Attributes:
        count: Number of attempts in a row that failed.
        refusal: The reason why the newest attempt failed, as a word such as `no_spare`.
        detail: A sentence for the operator.
        worker: The worker of the newest attempt.
        tried_ms: Time by the worker's clock, only for people.
        retry_after_ms: The pause after the newest attempt.
    """

    count: int
    refusal: str
    detail: str = ""
    worker: str = ""
    tried_ms: int = 0
    retry_after_ms: int = 0

    def merged(self, other: FailedAttempts) -> FailedAttempts:
        """The newer note."""
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
        tasks: The ledgers that the worker handles now, at most 1,000.
        ledgers_healed: Number of ledgers that this run of the worker healed.
        entries_copied: Number of entries that this run copied.
        bytes_copied: Number of bytes that this run copied.
        bytes_per_second: The rate of copying since the last report.
        bytes_per_second_max: The limit of this rate; 0 if there is no limit.
        state: `working`, `idle`, `disabled` or `waiting`.
        reported_ms: Time by the worker's clock, only for people.
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
    """Progress of a vacation: writers leave, then copies move, then no ledger names the bookie."""

    DRAINING = "draining"
    VACATING = "vacating"
    VACATED = "vacated"


@dataclass(frozen=True, slots=True, order=True)
class BlockedLedger:
    """A ledger that a vacation cannot move yet, and the reason."""

    ledger_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Vacation:
    """The state of a bookie that is taken out of service: a node in `<root>-repair/bookies`.

    Attributes:
        kind: The command that began the vacation.
        phase: The progress of the vacation.
        begun_by: The operator who began the vacation, and the computer of the command.
        begun_ms: Time by the operator's clock, only for people.
        ledgers_total: Number of ledgers that named the bookie at the first walk; -1 before this
            walk.
        ledgers_left: Number of ledgers that named the bookie at the newest walk; -1 before the
            first walk.
        bytes_total: Estimated bytes of these ledgers on the bookie (length x Qw / E) at the first
            walk; -1 before this walk.
        bytes_left: Estimated bytes of these ledgers on the bookie at the newest walk; -1 before the
            first walk.
        blocked: The first ledgers that cannot move now, at most 1,000.
        blocked_count: Number of all ledgers that cannot move now.
        detail: A sentence that states the reason why the vacation waits.
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
    """The union of two sets of ranges.

    An empty set stands for the whole fragment, and None for no entries.
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
