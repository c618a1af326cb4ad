"""The replica check: compares each member's list of entries with its stripe (AUTORECOVERY.md#N10).

All ledgers are checked once a week. Between these checks, the machine walks over all records
repeatedly. Each of these walks is a *lap*. A lap checks the ledgers that were closed, or in which a
fragment ended, since the last lap. If a bookie cannot list its entries, only the digest check,
which reads copies, checks its copies.

Between two laps, the machine checks unknown copies again, in *rounds*.
"""

from __future__ import annotations

from collections import Counter
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
    CopiesListed,
    CopiesVerified,
    FoundHole,
    LedgerRecord,
    ListCopies,
    ListOutcome,
    ReadCheckTime,
    StoreCheckTime,
    VerifyCopies,
)
from ledgerlog_spark.protocol.autorecovery.audit.stripes import (
    confirmed_fragments,
    lacking,
)
from ledgerlog_spark.protocol.autorecovery.audit.unknown import (
    ROUND_MS,
    UnknownCopies,
    UnknownCopy,
)
from ledgerlog_spark.protocol.ledger.quorum import owns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgerlog_spark.model import LedgerMetadata

WEEK_MS = 7 * 86_400_000
SILENT_MAX = 3
"""If this number of copies on a bookie are still unknown in a round, the round omits the other
copies on this bookie.
"""
CHANGES_MAX = 3
"""Maximum number of changes of a record during its check. After that, only the next lap checks the
ledger."""


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The times of the replica check.

    Attributes:
        interval_ms: Time from one check of all ledgers to the next such check.
        rounds_between_laps: Number of rounds after each lap. Each round takes at least `round_ms`.
        round_ms: Time between two rounds, which check the unknown copies.
        pause_ms: Pause after the check of each ledger, which limits the load on the bookies.
    """

    interval_ms: int = WEEK_MS
    rounds_between_laps: int = 6
    round_ms: int = ROUND_MS
    pause_ms: int = 5


class ReplicaCheck(CheckMachine):
    """Walks over all records, and checks the ledgers that are due."""

    def __init__(self, unknown: UnknownCopies, settings: ReplicaSettings | None = None) -> None:
        """Create a check that has not begun. The digest check must get the same `unknown`."""
        super().__init__()
        self._unknown = unknown
        self._settings = settings or ReplicaSettings()
        # result of `shape_of` for each ledger in the last lap; None before the first lap
        self._shapes: dict[int, int] | None = None
        self._holes = 0

    def _run(self) -> Steps[None]:
        while True:
            yield from self._lap()
            for _ in range(self._settings.rounds_between_laps):
                yield from self._wait(self._settings.round_ms)
                yield from self._round()

    def _is_whole_due(self) -> Steps[bool]:
        time: CheckTimeRead = yield ReadCheckTime(0, CheckKind.REPLICAS)
        if not time.is_read:
            return False  # the time could not be read; the next lap reads it again
        return time.elapsed_ms is None or time.elapsed_ms >= self._settings.interval_ms

    def _lap(self) -> Steps[None]:
        is_whole = yield from self._is_whole_due()
        before, shapes = self._shapes, dict[int, int]()
        after, is_end, checked, unreadable = -1, False, 0, 0
        self._holes = 0
        while not is_end:
            state = yield from self._enabled_cluster(self._settings.round_ms)
            page = yield from self._page(after)
            unreadable += len(page.unreadable)
            for record in page.records:
                shape = shapes[record.ledger_id] = shape_of(record.metadata)
                has_changed = before is not None and before.get(record.ledger_id, 0) != shape
                if is_whole or has_changed:
                    yield from self._check(record, state.registered)
                    yield from self._wait(self._settings.pause_ms)
                    checked += 1
            after, is_end = page.last, page.is_end
        self._shapes = shapes
        yield Indicate(CheckEnded(CheckKind.REPLICAS, checked, self._holes, unreadable=unreadable))
        if is_whole:
            yield Indicate(StoreCheckTime(CheckKind.REPLICAS, after, is_complete=True))

    def _check(self, found: LedgerRecord, registered: frozenset[str]) -> Steps[None]:
        """Check one ledger.

        Its holes are reported only if the record has not changed during the check.
        """
        record: LedgerRecord | None = found
        for _ in range(CHANGES_MAX):
            if record is None:
                return
            holes = yield from self._holes_of(record, registered)
            if not holes:
                return
            newest = yield from self._load(record.ledger_id)
            if newest is None:
                return
            if newest.version == record.version:
                self._holes += 1
                yield from self._report_holes(record.ledger_id, holes)
                return
            record = newest

    def _holes_of(self, record: LedgerRecord, registered: frozenset[str]) -> Steps[list[FoundHole]]:
        """Compare the lists of the registered members.

        The `Auditor` marks the ledgers of lost members.
        """
        lists: dict[str, Sequence[tuple[int, int]]] = {}
        for bookie_id in members_of(record.metadata):
            if bookie_id not in registered:
                continue
            listed: CopiesListed = yield ListCopies(0, bookie_id, record.ledger_id)
            copy = UnknownCopy(record.ledger_id, bookie_id)
            if listed.outcome is ListOutcome.UNKNOWN:
                self._unknown.note(copy)
                continue
            self._unknown.forget(copy)
            if listed.outcome is ListOutcome.LISTED:
                lists[bookie_id] = listed.ranges
        return holes_in(record.metadata, lists)

    # Copies that are unknown.

    def _round(self) -> Steps[None]:
        if not self._unknown.pending:
            return
        state = yield from self._enabled_cluster(self._settings.round_ms)
        silent: Counter[str] = Counter()
        for copy in self._unknown.pending:
            if silent[copy.bookie_id] == SILENT_MAX:
                continue  # the next round begins with the copies that this round has omitted
            record = yield from self._load(copy.ledger_id)
            if (
                record is None
                or copy.bookie_id not in members_of(record.metadata)
                or copy.bookie_id not in state.registered
            ):
                self._unknown.forget(copy)
            elif copy.entry_id is None:
                yield from self._look_again(copy, record, silent)
            else:
                yield from self._read_again(copy, copy.entry_id, record, silent)

    def _look_again(
        self, copy: UnknownCopy, record: LedgerRecord, silent: Counter[str]
    ) -> Steps[None]:
        listed: CopiesListed = yield ListCopies(0, copy.bookie_id, copy.ledger_id)
        if listed.outcome is ListOutcome.UNKNOWN:
            silent[copy.bookie_id] += 1
            if self._unknown.still(copy):
                yield from self._report_holes(
                    copy.ledger_id, holes_in(record.metadata, {copy.bookie_id: ()})
                )
            return
        self._unknown.forget(copy)
        if listed.outcome is ListOutcome.LISTED:
            holes = holes_in(record.metadata, {copy.bookie_id: listed.ranges})
            if holes:
                yield from self._report_holes(copy.ledger_id, holes)

    def _read_again(
        self, copy: UnknownCopy, entry_id: int, record: LedgerRecord, silent: Counter[str]
    ) -> Steps[None]:
        if not is_held_by(record.metadata, copy.bookie_id, entry_id):
            self._unknown.forget(copy)
            return
        read: CopiesVerified = yield VerifyCopies(0, copy.bookie_id, record, (entry_id,))
        silent[copy.bookie_id] += read.is_unknown
        if read.is_unknown and not self._unknown.still(copy):
            return
        self._unknown.forget(copy)
        if read.is_unknown or read.absent or read.damaged:
            fragment_id = record.metadata.fragment_of(entry_id).first_entry_id
            is_damaged = not read.absent
            hole = FoundHole(copy.bookie_id, fragment_id, entry_id, entry_id, is_damaged)
            yield from self._report_holes(copy.ledger_id, [hole])


def shape_of(metadata: LedgerMetadata) -> int:
    """Return a number that changes when a fragment or the ledger ends; 0 if none has ended."""
    return 2 * (len(metadata.fragments) - 1) + metadata.is_closed


def members_of(metadata: LedgerMetadata) -> list[str]:
    """Return the bookies of all fragments with confirmed entries, each once."""
    fragments = confirmed_fragments(metadata)
    return list(dict.fromkeys(one for fragment, _ in fragments for one in fragment.ensemble))


def is_held_by(metadata: LedgerMetadata, bookie_id: str, entry_id: int) -> bool:
    """Whether the entry is confirmed, and the bookie must have a copy of this entry."""
    return any(
        fragment.first_entry_id <= entry_id < end
        and bookie_id in fragment.ensemble
        and owns(metadata.quorum, fragment.ensemble.index(bookie_id), entry_id)
        for fragment, end in confirmed_fragments(metadata)
    )


def holes_in(
    metadata: LedgerMetadata, lists: Mapping[str, Sequence[tuple[int, int]]]
) -> list[FoundHole]:
    """Return a hole for each member of a fragment whose list lacks copies of this fragment."""
    holes = []
    for fragment, end in confirmed_fragments(metadata):
        for index, bookie_id in enumerate(fragment.ensemble):
            if bookie_id not in lists:
                continue
            first = fragment.first_entry_id
            lacks = lacking(metadata.quorum, index, first, end, lists[bookie_id])
            if lacks is not None:
                holes.append(FoundHole(bookie_id, first, *lacks))
    return holes
