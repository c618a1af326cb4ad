"""The placement check: finds copies whose place breaks the policy (AUTORECOVERY.md#N14).

A copy is reported only if fewer rules would be broken with the copy on another bookie. So copies do
not move endlessly in a cluster that cannot satisfy the policy. Each check reports at most one
bookie of each fragment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.autorecovery.audit.check_machine import (
    CheckMachine,
    Indicate,
    Steps,
)
from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    CheckEnded,
    CheckKind,
    CheckTimeRead,
    PlacesRead,
    ReadCheckTime,
    ReadPlaces,
    StoreCheckTime,
    WriteMove,
)
from ledgerlog_spark.protocol.autorecovery.audit.stripes import confirmed_fragments
from ledgerlog_spark.protocol.placement.adherence import adherence, wanted, windows
from ledgerlog_spark.protocol.placement.place import Placed, place

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ledgerlog_spark.model import LedgerMetadata, Quorum

DAY_MS = 86_400_000
ANSWERS_MAX = 10_000
"""Maximum number of ensembles whose results are stored during a check, so that they are not
computed again. Most ledgers have one of a few ensembles."""


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """The times of the placement check.

    Attributes:
        interval_ms: Time from one check of all ledgers to the next check.
        poll_ms: Time between two reads of the store that find out whether a check is due.
    """

    interval_ms: int = DAY_MS
    poll_ms: int = 3_600_000


class PlacementCheck(CheckMachine):
    """Compares the ensembles of all ledgers with the policy."""

    def __init__(self, settings: PlacementSettings | None = None) -> None:
        """Create a check that has not begun."""
        super().__init__()
        self._settings = settings or PlacementSettings()

    def _run(self) -> Steps[None]:
        while True:
            time: CheckTimeRead = yield ReadCheckTime(0, CheckKind.PLACEMENT)
            elapsed_ms, is_read = time.elapsed_ms, time.is_read
            if is_read and (elapsed_ms is None or elapsed_ms >= self._settings.interval_ms):
                yield from self._pass()
            yield from self._wait(self._settings.poll_ms)

    def _pass(self) -> Steps[None]:
        after, is_end, ledgers, moves, unreadable = -1, False, 0, 0, 0
        answers: dict[tuple[Quorum, tuple[str, ...]], str | None] = {}
        while not is_end:
            yield from self._enabled_cluster(self._settings.poll_ms)
            places: PlacesRead = yield ReadPlaces(0)
            if not places.is_read:
                return  # the next attempt begins with the first ledger
            page = yield from self._page(after)
            unreadable += len(page.unreadable)
            for record in page.records:
                ledgers += 1
                misplaced = misplaced_in(record.metadata, places, answers)
                if misplaced:
                    moves += 1
                    yield from self._write(WriteMove(0, record.ledger_id, misplaced))
            after, is_end = page.last, page.is_end
        yield Indicate(StoreCheckTime(CheckKind.PLACEMENT, after, is_complete=True))
        yield Indicate(CheckEnded(CheckKind.PLACEMENT, ledgers, moves, unreadable=unreadable))


def misplaced_in(
    metadata: LedgerMetadata,
    places: PlacesRead,
    answers: dict[tuple[Quorum, tuple[str, ...]], str | None],
) -> tuple[str, ...]:
    """Return the bookies whose copies of a ledger should move, at most one for each fragment."""
    found = set()
    for fragment, _ in confirmed_fragments(metadata):
        key = metadata.quorum, fragment.ensemble
        if key not in answers:
            if len(answers) >= ANSWERS_MAX:
                answers.clear()
            answers[key] = misplaced_of(*key, places)
        misplaced = answers[key]
        if misplaced is not None:
            found.add(misplaced)
    return tuple(sorted(found))


def misplaced_of(quorum: Quorum, ensemble: tuple[str, ...], places: PlacesRead) -> str | None:
    """Return the bookie of an ensemble that should be replaced; None if this would not help."""
    bookies, policy = places.bookies, places.policy
    if not adherence(ensemble, quorum, bookies, policy).misplaced:
        return None
    best, chosen = spread_of(quorum, ensemble, places), None
    others = [one for one in places.writable if one not in ensemble]
    for bookie_id in reversed(ensemble):
        keep = [None if one == bookie_id else one for one in ensemble]
        placed = place(quorum, keep, others, bookies, policy)
        if isinstance(placed, Placed):
            spread = spread_of(quorum, placed.ensemble, places)
            if spread > best:
                best, chosen = spread, bookie_id
    return chosen


def spread_of(quorum: Quorum, ensemble: Sequence[str], places: PlacesRead) -> tuple[int, int, int]:
    """Return the numbers of hosts, regions and racks, each added up over all write sets.

    For each write set, a number counts only up to the number that the policy requires. The three
    numbers are in the order of their importance.
    """
    bookies = places.bookies
    goal = wanted(quorum, bookies, places.policy)
    sets = [[ensemble[index] for index in window] for window in windows(quorum)]

    def total(place_of: Callable[[str], Hashable], number: int) -> int:
        return sum(min(number, len({place_of(one) for one in names})) for names in sets)

    return (
        total(bookies.host_of, goal.hosts),
        total(bookies.region_of, goal.regions),
        total(bookies.rack_of, goal.racks),
    )
