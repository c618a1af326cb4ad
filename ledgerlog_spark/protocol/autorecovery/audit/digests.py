"""The digest check: each copy is read once in 30 days (AUTORECOVERY.md#N13).

The check stores its position after each page of records and after each `POSITION_SIZE_BYTES`, so
that a successor can continue at this position. The rate of the check has a limit: after each read,
the machine waits as long as a read of these bytes takes at the maximum rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.autorecovery.audit.check_machine import (
    CheckMachine,
    Indicate,
    Steps,
    bounded,
)
from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    CheckEnded,
    CheckKind,
    CheckLate,
    CheckTimeRead,
    CopiesVerified,
    FoundHole,
    LedgerRecord,
    ReadCheckTime,
    StoreCheckTime,
    VerifyCopies,
)
from ledgerlog_spark.protocol.autorecovery.audit.replicas import is_held_by
from ledgerlog_spark.protocol.autorecovery.audit.stripes import confirmed_fragments
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies, UnknownCopy
from ledgerlog_spark.protocol.ledger.quorum import owns

if TYPE_CHECKING:
    from ledgerlog_spark.model import Fragment, Quorum

DAY_MS = 86_400_000
INTERVAL_MS = 30 * DAY_MS
RATE_BYTES_PER_SECOND = 16 << 20
VERIFIED_ENTRIES_MAX = 256
POSITION_SIZE_BYTES = 64 << 20
UNKNOWN_ENTRIES_MAX = 3
"""Maximum number of unknown entries of a fragment on one bookie. After that, the check omits all
further entries of the fragment on this bookie."""
COPY_HOLES_MAX = 1_000
"""Maximum number of holes of a fragment on one bookie. More holes are joined into fewer, wider
holes."""
WAIT_MS_MIN = 20
"""Minimum duration of a wait. Shorter waits are added up until their sum has this duration."""


@dataclass(frozen=True, slots=True)
class DigestSettings:
    """The times and the rate of the digest check.

    Attributes:
        interval_ms: Time from the start of one check of all copies to the start of the next check.
        rate_bytes_per_second: Maximum number of bytes that are read in a second.
        poll_ms: Time between two reads of the store that find out whether a check is due.
    """

    interval_ms: int = INTERVAL_MS
    rate_bytes_per_second: int = RATE_BYTES_PER_SECOND
    poll_ms: int = 3_600_000


class DigestCheck(CheckMachine):
    """Reads all copies, one after another, and reports missing and damaged copies."""

    def __init__(self, unknown: UnknownCopies, settings: DigestSettings | None = None) -> None:
        """Create a check that has not begun. The replica check must get the same `unknown`."""
        super().__init__()
        self._unknown = unknown
        self._settings = settings or DigestSettings()
        self._debt = 0  # number of read bytes for which the check has not waited yet
        self._unstored = 0  # number of bytes that were read after the last stored position
        self._size_bytes = 0
        self._holes = 0
        self._since_enabled = 0  # number of bytes read since the last test whether it is enabled
        self._elapsed_ms = 0  # duration of this pass so far, without the present wait
        self._is_late_from_ms = 0

    def _run(self) -> Steps[None]:
        while True:
            after = yield from self._due_after()
            if after is not None:
                yield from self._pass(after)
            # After a pass, this wait gives the host time to store the end of the pass. Without the
            # wait, the check might load the old position, and read all copies once more.
            yield from self._wait(self._settings.poll_ms)

    def _due_after(self) -> Steps[int | None]:
        """Return the position from which a check is due; None if none is due."""
        time: CheckTimeRead = yield ReadCheckTime(0, CheckKind.DIGESTS)
        if not time.is_read:
            return None
        is_under_way = time.after >= 0
        self._elapsed_ms = time.elapsed_ms or 0 if is_under_way else 0
        self._is_late_from_ms = self._settings.interval_ms
        is_due = time.elapsed_ms is None or time.elapsed_ms >= self._settings.interval_ms
        return time.after if is_under_way or is_due else None

    def _pass(self, after: int) -> Steps[None]:
        ledgers, unreadable, is_end = 0, 0, False
        self._size_bytes = self._holes = 0
        while not is_end:
            state = yield from self._enabled_cluster(self._settings.poll_ms)
            page = yield from self._page(after)
            unreadable += len(page.unreadable)
            for record in page.records:
                yield from self._ledger(record, state.registered)
                ledgers += 1
                if self._unstored >= POSITION_SIZE_BYTES:
                    self._unstored = 0
                    state = yield from self._enabled_cluster(self._settings.poll_ms)
                    yield Indicate(StoreCheckTime(CheckKind.DIGESTS, record.ledger_id))
                yield from self._report_if_late(record.ledger_id)
            after, is_end = page.last, page.is_end
            if not is_end:
                yield Indicate(StoreCheckTime(CheckKind.DIGESTS, after))
        yield Indicate(StoreCheckTime(CheckKind.DIGESTS, after, is_complete=True))
        yield Indicate(
            CheckEnded(CheckKind.DIGESTS, ledgers, self._holes, self._size_bytes, unreadable)
        )

    def _ledger(self, record: LedgerRecord, registered: frozenset[str]) -> Steps[None]:
        bad: list[FoundHole] = []
        for fragment, end in confirmed_fragments(record.metadata):
            for index, bookie_id in enumerate(fragment.ensemble):
                if bookie_id in registered:
                    bad += yield from self._copy(record, fragment, end, index)
        if not bad:
            return
        newest = yield from self._load(record.ledger_id)
        if newest is None:
            return
        holes = [
            one for one in bad if is_held_by(newest.metadata, one.bookie_id, one.first_entry_id)
        ]
        if holes:
            self._holes += 1
            yield from self._report_holes(record.ledger_id, holes)

    def _copy(
        self, record: LedgerRecord, fragment: Fragment, end: int, index: int
    ) -> Steps[list[FoundHole]]:
        """Read the copies of a fragment on one bookie. Return holes of absent or damaged copies."""
        bookie_id, quorum = fragment.ensemble[index], record.metadata.quorum
        position, unknown, bad = fragment.first_entry_id, 0, list[FoundHole]()
        while ids := owned_from(quorum, index, position, end):
            read: CopiesVerified = yield VerifyCopies(0, bookie_id, record, ids)
            first = fragment.first_entry_id
            newest = [FoundHole(bookie_id, first, one, one) for one in read.absent]
            newest += [FoundHole(bookie_id, first, n, n, is_damaged=True) for n in read.damaged]
            # Of the earlier holes, only the last one may be adjacent to a hole of this read.
            bad[-1:] = joined([*bad[-1:], *newest], quorum)
            if len(bad) > COPY_HOLES_MAX:
                bad = list(bounded(bad))
            yield from self._pay(read.size_bytes)
            if self._since_enabled >= POSITION_SIZE_BYTES:
                # The check of a ledger may take days, and an operator may have disabled
                # auto-recovery during this time.
                self._since_enabled = 0
                yield from self._enabled_cluster(self._settings.poll_ms)
            position = max(position, read.verified + 1)
            if read.is_unknown:
                entry_id = next(one for one in ids if one >= position)
                self._unknown.note(UnknownCopy(record.ledger_id, bookie_id, entry_id))
                position, unknown = entry_id + 1, unknown + 1
                if unknown == UNKNOWN_ENTRIES_MAX:
                    break
        return bad

    def _pay(self, size_bytes: int) -> Steps[None]:
        """Wait as long as a read of `size_bytes` takes at the maximum rate of the check."""
        self._size_bytes += size_bytes
        self._debt += size_bytes
        self._unstored += size_bytes
        self._since_enabled += size_bytes
        wait_ms = self._debt * 1_000 // self._settings.rate_bytes_per_second
        if wait_ms >= WAIT_MS_MIN:
            self._debt = 0
            self._elapsed_ms += wait_ms
            yield from self._wait(wait_ms)

    def _report_if_late(self, ledger_id: int) -> Steps[None]:
        """Report once a day if the pass takes longer than the interval (AUTORECOVERY.md#N13)."""
        if self._elapsed_ms > self._is_late_from_ms:
            self._is_late_from_ms = self._elapsed_ms + DAY_MS
            interval_ms = self._settings.interval_ms
            yield Indicate(CheckLate(CheckKind.DIGESTS, self._elapsed_ms, interval_ms, ledger_id))


def joined(holes: list[FoundHole], quorum: Quorum) -> list[FoundHole]:
    """Join holes that are at most as far apart as two neighbouring entries of the bookie can be.

    A bookie that lacks all entries of a fragment then has one hole, so the list of holes stays
    small.
    """
    gap_max = quorum.ensemble_size - quorum.write_quorum + 1
    found: list[FoundHole] = []
    for hole in holes:
        before = found[-1] if found else None
        if (
            before is not None
            and before.is_damaged == hole.is_damaged
            and 0 < hole.first_entry_id - before.last_entry_id <= gap_max
        ):
            found[-1] = replace(before, last_entry_id=hole.last_entry_id)
        else:
            found.append(hole)
    return found


def owned_from(quorum: Quorum, index: int, first: int, end: int) -> tuple[int, ...]:
    """Return the ids from `first` on that an index must have, at most `VERIFIED_ENTRIES_MAX`."""
    owned = (one for one in range(first, end) if owns(quorum, index, one))
    return tuple(islice(owned, VERIFIED_ENTRIES_MAX))
