"""The machine that replicates one ledger (AUTORECOVERY.md, "Replication workers")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.model import (
    RUN_ENTRIES_MAX,
    Code,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.autorecovery.replicate.copying import (
    Copied,
    CopyRun,
    RecordChangedError,
    Sources,
    Steps,
    StopJobError,
    TargetError,
    is_settled,
)
from ledgerlog_spark.protocol.autorecovery.replicate.messages import (
    DeleteTask,
    Effect,
    EntriesListed,
    EntryRange,
    ForceEntries,
    JobEnded,
    JobOutcome,
    ListEntries,
    ListRegistered,
    LoadTask,
    MeasureQuiet,
    ReadCopies,
    ReadFloor,
    RecoverForCopies,
    RegisteredListed,
    ReleaseLock,
    Reply,
    ReportUnreadable,
    TakeLock,
    Task,
    UnreadableEntries,
)
from ledgerlog_spark.protocol.autorecovery.replicate.needs import (
    Kind,
    LackingByLists,
    LackingCopies,
    find_needs,
    has_gap,
    is_registered,
    members_to_list,
    missing_runs,
)
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import joined, lacking_runs, replaced
from ledgerlog_spark.protocol.autorecovery.replicate.targets import choose_target
from ledgerlog_spark.protocol.autorecovery.replicate.unreadable import as_ranges
from ledgerlog_spark.protocol.ledger.identities import Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import (
    CasMetadata,
    LoadMetadata,
    MetadataOutcome,
    StartTimer,
)
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

Choose = Callable[[int, Quorum, Fragment, int, RegisteredListed, frozenset[str]], str | None]

REPORTED_MAX = 1_000
"""Maximum number of unreadable ranges in a report."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Limits of a job.

    Attributes:
        grace_ms: Time that the job waits, so that the writer of an open ledger can replace a lost
            bookie, or a recovery can make progress.
        quiet_ms: Time without a new entry after which an open ledger is closed even if no spare
            bookie exists.
        passes_max: Maximum number of passes of a job.
        conflicts_max: Maximum number of passes without progress.
        targets_max: Maximum number of bookies that are tried as target of an index in one pass.
        splits_max: Maximum number of holes around which a fragment is split in one write.
    """

    grace_ms: int = 30_000
    quiet_ms: int = 3_600_000
    passes_max: int = 1_000
    conflicts_max: int = 8
    targets_max: int = 3
    splits_max: int = 64


class LedgerReplication:
    """Heals one ledger of a queue. The host performs all requests of a step together.

    The host calls `begin`, and then `handle` for each reply, until it gets the effect `JobEnded`.
    If the session that took the lock ends, the host drops the machine, and sends none of its
    requests in another session (AUTORECOVERY.md#X2).
    """

    def __init__(
        self,
        ledger_id: int,
        settings: ReplicationSettings | None = None,
        choose: Choose = choose_target,
    ) -> None:
        """Create a job that has not begun. `choose` returns the target of an index."""
        self.ledger_id = ledger_id
        self._settings = settings or ReplicationSettings()
        self._choose = choose
        self._numbers = RequestNumbers()
        self._running = self._run()
        self._open: dict[int, int] = {}  # request number to its place in the step
        self._replies: list[Reply | None] = []
        self._task: Task
        self._record: Versioned[LedgerMetadata]
        self._registered: RegisteredListed
        self._lists: dict[str, EntriesListed] = {}
        self._unreadable: list[UnreadableEntries] = []
        self._settled: set[tuple[str, int]] = set()  # the argument `settled` of `find_needs`
        self._waited_at: Versioned[LedgerMetadata] | None = None  # the record before the grace time
        self._entries = self._size_bytes = self._replaced = 0
        self.has_ended = False

    def begin(self) -> list[Effect]:
        """Return the first effects."""
        return self._go_on(None)

    def handle(self, reply: Reply) -> list[Effect]:
        """Store the reply to a request, and return the next effects when the step is complete."""
        place = self._open.pop(reply.request, None)
        if place is None or self.has_ended:
            return []
        self._replies[place] = reply
        return [] if self._open else self._go_on(self._replies)

    @property
    def entries_copied(self) -> int:
        """Number of entries that bookies have stored for the indexes that the job has finished."""
        return self._entries

    def _go_on(self, replies: list[Reply | None] | None) -> list[Effect]:
        try:
            step = self._running.send(replies)
        except StopIteration as end:
            self.has_ended = True
            return [end.value]
        effects = [replace(one, request=self._numbers.next()) for one in step]
        self._open = {one.request: place for place, one in enumerate(effects)}
        self._replies = [None] * len(effects)
        return effects

    def _run(self) -> Steps[JobEnded]:
        """Run the whole job. The task is loaded before the lock is taken (AUTORECOVERY.md#X1)."""
        (loaded,) = yield (LoadTask(),)
        if loaded.task is None:
            is_gone = loaded.outcome is MetadataOutcome.GONE
            return self._ended(JobOutcome.NOTHING if is_gone else JobOutcome.UNAVAILABLE)
        self._task = loaded.task
        (lock,) = yield (TakeLock(),)
        if not lock.is_mine:
            is_known = lock.outcome is MetadataOutcome.OK
            return self._ended(JobOutcome.LOCKED if is_known else JobOutcome.UNAVAILABLE)
        try:
            outcome, detail = yield from self._passes()
        except StopJobError as stop:
            outcome, detail = stop.outcome, stop.detail
        yield from self._report(outcome)
        yield (ReleaseLock(),)
        return self._ended(outcome, detail)

    def _ended(self, outcome: JobOutcome, detail: str = "") -> JobEnded:
        return JobEnded(outcome, detail, self._entries, self._size_bytes, self._replaced)

    def _report(self, outcome: JobOutcome) -> Steps[None]:
        """Store the report of unreadable entries; delete it if the ledger is whole or deleted."""
        if outcome in (JobOutcome.HEALED, JobOutcome.DELETED) or self._unreadable:
            yield (ReportUnreadable(as_ranges(self._unreadable)[:REPORTED_MAX]),)

    def _passes(self) -> Steps[tuple[JobOutcome, str]]:
        """Make passes until no copy is missing, or until the job cannot continue."""
        fruitless = 0
        for _ in range(self._settings.passes_max):
            if not (yield from self._load()):
                return (yield from self._finish(JobOutcome.DELETED, None))
            needs = yield from self._look()
            self._unreadable = []
            replaced_before, failed = self._replaced, None
            if needs.items:
                failed = yield from self._work(needs)
                is_stuck = failed is not None and failed[0] is not JobOutcome.CONFLICTS
                if needs.mends_last and is_stuck and self._replaced == replaced_before:
                    failed = yield from self._mend_last()
            elif needs.mends_last:
                failed = yield from self._mend_last()
            elif needs.waits_for:
                return JobOutcome.WAITING, needs.reason
            else:
                return (yield from self._finish(JobOutcome.HEALED, self._record.version))
            if self._replaced != replaced_before:
                continue
            is_conflict = failed is not None and failed[0] is JobOutcome.CONFLICTS
            fruitless += 1
            if failed is not None and not (
                is_conflict and fruitless <= self._settings.conflicts_max
            ):
                return failed
            if fruitless > self._settings.conflicts_max:
                break
        return JobOutcome.CONFLICTS, ""

    def _finish(self, outcome: JobOutcome, record: Version | None) -> Steps[tuple[JobOutcome, str]]:
        """Delete the task if neither the task nor the record has changed (AUTORECOVERY.md#X1)."""
        (deleted,) = yield (DeleteTask(self._task.version, record),)
        if deleted.outcome is not MetadataOutcome.OK:
            return JobOutcome.UNAVAILABLE, "the task could not be deleted"
        return (outcome, "") if deleted.is_deleted else (JobOutcome.CHANGED, "")

    def _load(self) -> Steps[bool]:
        """Load the record after a sync, and the registrations. Return whether the record exists."""
        (loaded,) = yield (LoadMetadata(0, sync_first=True),)
        if loaded.outcome is MetadataOutcome.GONE:
            return False
        if loaded.outcome is MetadataOutcome.UNREADABLE:
            raise StopJobError(JobOutcome.UNREADABLE_RECORD)
        if loaded.outcome is not MetadataOutcome.OK:
            raise StopJobError(JobOutcome.UNAVAILABLE)
        self._record = loaded.versioned
        if not self._record.value.has_password:
            raise StopJobError(JobOutcome.NO_KEY)
        (registered,) = yield (ListRegistered(),)
        if registered.outcome is not MetadataOutcome.OK:
            raise StopJobError(JobOutcome.UNAVAILABLE)
        self._registered = registered
        return True

    def _look(self) -> Steps[LackingByLists]:
        """List the entries of the members, and compare the lists with the record."""
        members = members_to_list(self._record.value, self._registered, self._task)
        self._lists = {}
        if members:
            replies = yield tuple(map(ListEntries, members))
            self._lists = dict(zip(members, replies, strict=True))
        return find_needs(
            self._record.value, self._registered, self._lists, self._task, self._settled
        )

    def _work(self, needs: LackingByLists) -> Steps[tuple[JobOutcome, str] | None]:
        """Perform all needed operations. Return the first failure; None if all succeeded.

        If the pass has changed a fragment, the other needs of this fragment wait for the next pass.
        """
        failed: tuple[JobOutcome, str] | None = None
        changed: set[int] = set()
        names = frozenset((*self._registered.writable, *self._registered.read_only))
        sources = Sources(self._lists, names)
        for need in needs.items:
            if need.fragment.first_entry_id in changed:
                continue
            copying = CopyRun(self._record, sources)
            before = self._replaced
            try:
                failure = yield from self._work_on(need, copying)
            finally:
                self._entries += copying.entries
                self._size_bytes += copying.size_bytes
            if self._replaced != before:
                changed.add(need.fragment.first_entry_id)
            failed = failed or failure
            if failure is not None and failure[0] is JobOutcome.CONFLICTS:
                break
        return failed

    def _work_on(
        self, need: LackingCopies, copying: CopyRun
    ) -> Steps[tuple[JobOutcome, str] | None]:
        try:
            if need.kind is Kind.REPLACE:
                return (yield from self._replace(need, copying))
            return (yield from self._fill(need, copying))
        except RecordChangedError:
            return JobOutcome.CONFLICTS, "another client changed the record"

    # Operations for a registered member that lacks copies.

    def _fill(self, need: LackingCopies, copying: CopyRun) -> Steps[tuple[JobOutcome, str] | None]:
        """Copy missing entries to a member. The record does not change (AUTORECOVERY.md#X5)."""
        held: Sequence[EntryRange]
        if need.kind is Kind.PROBE:
            probed = yield from self._probe(need)
            held = joined([*probed, *self._lists[need.member].given_up])
        else:
            held = self._lists[need.member].ranges
        runs = missing_runs(self._record.value, need, held)
        try:
            copied = yield from copying.copy(need.fragment, need.member, runs)
        except TargetError as failed:
            return JobOutcome.TARGET_FAILED, failed.detail
        if need.kind is Kind.FILL and copied.last_entry_id is not None:
            (forced,) = yield (ForceEntries(need.member, copied.last_entry_id),)
            if forced.code is not Code.OK:
                return JobOutcome.TARGET_FAILED, f"{need.member}: {forced.code.value}"
        if need.damaged or (need.kind is Kind.PROBE and copied.last_entry_id is None):
            self._settled.add((need.member, need.fragment.first_entry_id))
        return self._failure_of(copied)

    def _probe(self, need: LackingCopies) -> Steps[list[EntryRange]]:
        """Read the entries of a member that cannot list them; return the ranges that it has."""
        held: list[EntryRange] = []
        first, end = need.fragment.first_entry_id, need.end
        for low, high in lacking_runs(self._record.value.quorum, need.index, first, end, ()):
            position = low
            while position <= high:
                count = min(high - position + 1, RUN_ENTRIES_MAX)
                (reply,) = yield (ReadCopies(need.member, position, count),)
                if reply.code is Code.OK and reply.copies:
                    held.append((position, reply.copies[-1].entry_id))
                    position = reply.copies[-1].entry_id + 1
                elif reply.code.is_absent or reply.code is Code.DIGEST_MISMATCH:
                    position += 1
                else:
                    raise StopJobError(JobOutcome.WAITING, f"{need.member}: {reply.code.value}")
        return held

    # Operations for a member that must be replaced.

    def _replace(
        self, need: LackingCopies, copying: CopyRun
    ) -> Steps[tuple[JobOutcome, str] | None]:
        """Copy an index's stripe to another bookie, then name it (AUTORECOVERY.md#X6)."""
        tried: set[str] = set()
        detail = f"in place of {need.member}"
        while len(tried) < self._settings.targets_max:
            target = self._target_of(need, frozenset(tried))
            if target is None:
                break
            tried.add(target)
            (read,) = yield (ReadIdentities(0, (target,)),)
            if read.identities is None:
                return JobOutcome.UNAVAILABLE, ""
            if not read.identities:
                detail = f"{target} has no cookie"
                continue
            try:
                return (yield from self._move(need, target, read.identities[0], copying))
            except TargetError as failed:
                detail = failed.detail
        return (JobOutcome.TARGET_FAILED if tried else JobOutcome.NO_SPARE), detail

    def _target_of(self, need: LackingCopies, tried: frozenset[str]) -> str | None:
        quorum = self._record.value.quorum
        return self._choose(
            self.ledger_id, quorum, need.fragment, need.index, self._registered, tried
        )

    def _move(
        self, need: LackingCopies, target: str, identity: Identity, copying: CopyRun
    ) -> Steps[tuple[JobOutcome, str] | None]:
        """Copy the missing entries. If the target has the whole stripe durably, then name it.

        The identity was read before the first copy (AUTORECOVERY.md#X7). For entries that no bookie
        returned, the record still names the old member.

        Raises:
            TargetError: The target did not store a copy, or lost it.
        """
        metadata = self._record.value
        (listed,) = yield (ListEntries(target),)
        can_list = listed.code is Code.OK
        if not (can_list or listed.code is Code.BAD_REQUEST):
            raise TargetError(target, listed.code)
        held = joined([*listed.ranges, *listed.given_up])
        copied = yield from copying.copy(need.fragment, target, missing_runs(metadata, need, held))
        copied.given_up = listed.given_up
        failure = self._failure_of(copied)
        if failure is not None and not self._may_split(need, copied):
            return failure
        yield from self._require_held(need, target, copied, can_list=can_list)
        moved = replaced(metadata, need.fragment, need.end, need.index, target, copied.holes)
        return (yield from self._name(moved, identity)) or failure

    def _may_split(self, need: LackingCopies, copied: Copied) -> bool:
        """Whether the fragment may be split around the unreadable entries (AUTORECOVERY.md#X8)."""
        registered = frozenset((*self._registered.writable, *self._registered.read_only))
        holes, end = copied.holes, need.end
        is_everything = not has_gap(self._record.value, need, (), holes)
        return (
            len(holes) <= self._settings.splits_max
            and not is_everything
            and not copied.is_cut
            and all(is_settled(one, registered) for one in copied.unreadable)
            and all(high < end for _, high in holes)
        )

    def _require_held(
        self, need: LackingCopies, target: str, copied: Copied, *, can_list: bool
    ) -> Steps[None]:
        """Sync and list the entries. If `can_list` is false, only one connection must be used."""
        metadata = self._record.value
        if not can_list:
            if len(copied.connections) > 1:
                raise TargetError(target, Code.UNAVAILABLE)
            return
        # A request to sync names an entry. If the target lacked this entry, it would sync nothing.
        absent = joined([*copied.holes, *copied.given_up])
        entry_id = next(self._owed_except(need, absent), None)
        if entry_id is None:
            return
        (forced,) = yield (ForceEntries(target, entry_id),)
        if forced.code is not Code.OK:
            raise TargetError(target, forced.code)
        (listed,) = yield (ListEntries(target),)
        if listed.code is not Code.OK:
            raise TargetError(target, listed.code)
        if has_gap(metadata, need, listed.ranges, copied.holes):
            raise TargetError(target, Code.NO_ENTRY)

    def _owed_except(self, need: LackingCopies, holes: Sequence[EntryRange]) -> Iterator[int]:
        first, end, quorum = need.fragment.first_entry_id, need.end, self._record.value.quorum
        return (low for low, _ in lacking_runs(quorum, need.index, first, end, holes))

    def _name(
        self, moved: LedgerMetadata, identity: Identity
    ) -> Steps[tuple[JobOutcome, str] | None]:
        """Write the record. If the outcome is not OK, the next pass decides again."""
        (written,) = yield (CasMetadata(0, moved, self._record.version, (identity,)),)
        if written.outcome is MetadataOutcome.OK:
            self._record = written.versioned
            self._replaced += 1
            return None
        if written.outcome is MetadataOutcome.UNAVAILABLE:
            return JobOutcome.UNAVAILABLE, ""
        return JobOutcome.CONFLICTS, f"the write of the record: {written.outcome.value}"

    def _failure_of(self, copied: Copied) -> tuple[JobOutcome, str] | None:
        """Return why an index lacks entries; None if all were copied. Note unreadable entries."""
        if not copied.unreadable:
            is_cut = (JobOutcome.WAITING, "too many reads failed; the next attempt continues")
            return is_cut if copied.is_cut else None
        self._unreadable.extend(copied.unreadable)
        first = copied.unreadable[0].first_entry_id
        return JobOutcome.UNREADABLE, f"{len(copied.unreadable)} entries from {first} on"

    # Operations for the last fragment of a ledger that is not closed.

    def _mend_last(self) -> Steps[tuple[JobOutcome, str] | None]:
        """Wait for the writer or the recovery, and then close the ledger (AUTORECOVERY.md#X9).

        Returns:
            The reason why the ledger was not closed; None if the next pass decides.
        """
        if not self._has_waited():
            self._waited_at = self._record
            yield (StartTimer(0, self._settings.grace_ms),)
            return None
        metadata = self._record.value
        if metadata.state is LedgerState.OPEN and not self._has_spares():
            (quiet,) = yield (MeasureQuiet(metadata.last_fragment.ensemble),)
            if quiet.quiet_ms < self._settings.quiet_ms:
                return JobOutcome.NO_SPARE, "the open ledger stays open without a spare bookie"
        (floor,) = yield (ReadFloor(),)
        if floor.outcome is not MetadataOutcome.OK:
            return JobOutcome.UNAVAILABLE, "the log of the ledger could not be read"
        (recovered,) = yield (RecoverForCopies(floor.floor),)
        if recovered.failure is not None:
            return JobOutcome.RECOVERY_FAILED, recovered.failure.value
        return None

    def _has_waited(self) -> bool:
        """Whether the last fragment and a recovery have not changed since the job began to wait."""
        before, now = self._waited_at, self._record
        if before is None or before.value.state is not now.value.state:
            return False
        if now.value.state is LedgerState.IN_RECOVERY:
            return before.version == now.version
        return before.value.last_fragment == now.value.last_fragment

    def _has_spares(self) -> bool:
        """Whether each lost bookie of the last fragment can be replaced."""
        metadata, registered = self._record.value, self._registered
        last, taken = metadata.last_fragment, set[str]()
        for index, name in enumerate(last.ensemble):
            if is_registered(registered, name):
                continue
            spare = self._choose(
                self.ledger_id, metadata.quorum, last, index, registered, frozenset(taken)
            )
            if spare is None:
                return False
            taken.add(spare)
        return True
