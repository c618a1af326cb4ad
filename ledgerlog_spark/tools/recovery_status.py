"""Reads from the stores of auto-recovery what it does, and why a ledger is not healed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome
from ledgerlog_spark.wire.ledger_loss import LedgerLoss
from ledgerlog_spark.wire.repair_notes import (
    FailedAttempts,
    Hole,
    Move,
    UnreadableRange,
    Vacation,
    WorkerReport,
)

COUNTED_MAX = 100_000
"""Maximum number up to which the ledgers of a queue are counted."""

QUEUES = ("marks", "holes", "moves", "unreadable")


ADVICE = {
    JobOutcome.NO_SPARE: "Start a bookie that the ledger does not name, or the bookie that is away",
    JobOutcome.WAITING: "Start the bookie that is away",
    JobOutcome.UNREADABLE: (
        "Start all bookies that ever had it, or run `ledgerlog ledgers accept-loss`"
    ),
    JobOutcome.COPIES_DIFFER: "`ledgerlog ledgers show --replicas` reads the copies",
    JobOutcome.TARGET_FAILED: "Read the log of this bookie",
    JobOutcome.UNREADABLE_RECORD: "`ledgerlog ledgers check` shows why",
}
"""Maps the outcome of an attempt to a text that states what the operator should do."""


@dataclass(frozen=True, slots=True)
class QueueLength:
    """Number of ledgers in a queue. `is_whole` is false if counting stopped at `COUNTED_MAX`."""

    ledgers: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """The state of auto-recovery of a cluster.

    Attributes:
        is_enabled: Whether auditors mark ledgers, and workers start to heal further ledgers.
        delay_s: Delay in seconds before the ledgers of one lost bookie are marked, or None if no
            delay is stored.
        auditor: Id of the auditor, or None if no auditor runs.
        queues: The length of each queue of `QUEUES`.
        workers: Maps the ids of workers to their reports.
        vacations: Maps the ids of bookies that are drained, decommissioned or recovered to their
            vacations.
    """

    is_enabled: bool
    delay_s: int | None
    auditor: str | None
    queues: dict[str, QueueLength]
    workers: dict[str, WorkerReport]
    vacations: dict[str, Vacation]


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The facts that show why a ledger is not healed, or that it needs no healing.

    Attributes:
        metadata: The metadata of the ledger, or None if the ledger is deleted.
        lost_bookies: Ids of the lost bookies that the mark of the ledger names; empty if there is
            no mark.
        marked_ms: Time when the mark was made, in ms since 1970 by the clock of the auditor.
        holes: Copies of the ledger that registered bookies lack.
        moves: Copies of the ledger that must move to other bookies.
        unreadable: Ranges of entries of which no copy was readable.
        losses: Entries that an operator gave up, or None if no entry was given up.
        attempts: The failed attempts to heal the ledger, or None before the third failed attempt.
        lock_holder: Id of the process that has the lock of the ledger now, usually a worker, or
            None if the lock is free.
        worker: Id of a worker that reports the ledger as its task, or None if there is no such
            worker.
        is_enabled: Whether auto-recovery is enabled.
        auditor: Id of the auditor, or None if no auditor runs.
        workers_count: Number of workers of ledgerlog.
    """

    ledger_id: int
    metadata: LedgerMetadata | None
    lost_bookies: Sequence[str]
    marked_ms: int | None
    holes: Sequence[Hole]
    moves: Sequence[Move]
    unreadable: Sequence[UnreadableRange]
    losses: LedgerLoss | None
    attempts: FailedAttempts | None
    lock_holder: str | None
    worker: str | None
    is_enabled: bool
    auditor: str | None
    workers_count: int

    @property
    def is_queued(self) -> bool:
        """Whether a queue contains the ledger."""
        return bool(self.lost_bookies or self.holes or self.moves)

    def reasons(self) -> list[str]:
        """Return texts that state why the ledger is not healed.

        The most important reason is first.
        """
        if self.metadata is None:
            return [
                "the ledger does not exist"
                + ("; a worker deletes its entries in the queues" if self.is_queued else "")
            ]
        found = []
        if self.unreadable:
            entries = sum(e.last_entry_id - e.first_entry_id + 1 for e in self.unreadable)
            found.append(
                f"{entries:,} of its entries could not be read from any bookie: start the bookies "
                f"that had them, or run `ledgerlog ledgers accept-loss {self.ledger_id}`"
            )
        if not self.is_queued:
            if not found:
                found.append(
                    "no queue has the ledger. If it lacks copies, `ledgerlog autorecovery audit` "
                    f"requests an audit, and `ledgerlog ledgers check {self.ledger_id}` shows "
                    "the missing copies"
                )
            return found
        if not self.is_enabled:
            found.append("auto-recovery is disabled: `ledgerlog autorecovery enable` enables it")
        if self.lock_holder is not None:
            found.append(f"{self.lock_holder} works on the ledger now")
        if self.attempts is not None:
            pause_s = self.attempts.retry_after_ms / 1_000
            # If a newer release has written the outcome, it may be missing in this release.
            outcome = JobOutcome.__members__.get(self.attempts.refusal.upper())
            meaning = repr(self.attempts.refusal) if outcome is None else outcome.value
            advice = "" if outcome is None else ADVICE.get(outcome, "")
            detail = f" ({self.attempts.detail})" if self.attempts.detail else ""
            found.append(
                f"{self.attempts.count} attempts failed, the last one because {meaning}{detail}; "
                f"the next one follows after {pause_s:,.0f} s. {advice}".rstrip()
            )
        if not self.workers_count and self.lock_holder is None:
            found.append("no worker of ledgerlog runs: start one with `ledgerlog autorecovery run`")
        return found or ["the ledger waits in the queue for a free worker"]


async def recovery_status(stores: MetadataStores) -> RecoveryStatus:
    """Read the state of auto-recovery."""
    delay = await stores.recovery_switch.lost_bookie_delay()
    vacations = await stores.vacations.all()
    return RecoveryStatus(
        is_enabled=await stores.recovery_switch.is_enabled(),
        delay_s=None if delay is None else delay.value,
        auditor=await stores.auditor_election.current(),
        queues={
            "marks": await _length(stores.marks.walk()),
            "holes": await _length(stores.holes.walk()),
            "moves": await _length(stores.moves.walk()),
            "unreadable": await _length(stores.unreadable.walk()),
        },
        workers=dict(await stores.worker_reports.all()),
        vacations={name: each.value for name, each in vacations.items()},
    )


async def ledger_status(stores: MetadataStores, ledger_id: int) -> LedgerStatus:
    """Read the facts that show why a ledger is not healed."""
    await stores.ledgers.sync()
    try:
        metadata = (await stores.ledgers.load(ledger_id)).value
    except LedgerNotFoundError:
        metadata = None
    mark = await stores.marks.load(ledger_id)
    holes = await stores.holes.load(ledger_id)
    moves = await stores.moves.load(ledger_id)
    unreadable = await stores.unreadable.load(ledger_id)
    attempts = await stores.attempts.load(ledger_id)
    workers = await stores.worker_reports.all()
    busy = [
        name
        for name, report in workers.items()
        if any(task.ledger_id == ledger_id for task in report.tasks)
    ]
    return LedgerStatus(
        ledger_id=ledger_id,
        metadata=metadata,
        lost_bookies=() if mark is None else mark.replicas,
        marked_ms=None if mark is None else mark.created_ms,
        holes=() if holes is None else holes.value.holes,
        moves=() if moves is None else moves.value.moves,
        unreadable=() if unreadable is None else unreadable.value.ranges,
        losses=await stores.accepted_losses.of_ledger(ledger_id),
        attempts=None if attempts is None else attempts.value,
        lock_holder=await stores.replication_locks.holder(ledger_id),
        worker=busy[0] if busy else None,
        is_enabled=await stores.recovery_switch.is_enabled(),
        auditor=await stores.auditor_election.current(),
        workers_count=len(workers),
    )


async def _length(walk: AsyncIterator[int]) -> QueueLength:
    ledgers = 0
    async for _ in walk:
        ledgers += 1
        if ledgers >= COUNTED_MAX:
            return QueueLength(ledgers, False)
    return QueueLength(ledgers, True)
