"""Failures that callers were told of: each has to name something that happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    CommitUnknownError,
    ConcurrentCommitError,
    LedgerLogError,
    LogExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
    ProducerFencedError,
    SchemaMismatchError,
    StaleCheckpointError,
    VersionNotAvailableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.sim.log.hosts.process import Process
    from tests.sim.log.hosts.world import HostWorld

RETRIES_WITHOUT_FAULTS = 5


@dataclass
class Call:
    """One call of an actor: what was so when it began.

    Attributes:
        log_id: Of the log.
        app: The producer, None without one.
        run: Of the producer.
        batch_id: Of the batch, -1 without one.
        since_ms: When its job began, for what is too old.
    """

    world: HostWorld
    process: Process
    log_id: str
    app: str | None = None
    run: str = ""
    batch_id: int = -1
    since_ms: int = 0

    def __post_init__(self) -> None:
        self.since_ms = self.since_ms or self.world.now_ms()
        self._faults = self.process.tree.faults
        self._changes = self._changes_now()

    def _changes_now(self) -> int:
        view = self.world.views.get(self.log_id)
        return view.head_changes if view is not None else 0

    def judge(self, error: LedgerLogError) -> None:
        """Raise a violation unless something explains the failure."""
        if self.process.has_crashed:
            return
        self.world.counts[f"failed: {type(error).__name__}"] += 1
        if not self._is_explained(error):
            raise self.world.violation(f"nothing explains {error!r}") from error

    def judge_in_a_pass(self, error: LedgerLogError, since: Call) -> None:
        """As `judge`, of a pass over all logs that began with `since`."""
        if self.process.has_crashed:
            return
        others = [view for view in self.world.views.values() if view.deleted_at_ms is not None]
        gone = isinstance(error, LogNotFoundError | MetadataVersionError) and bool(others)
        if not gone:
            since.judge(error)

    def _is_explained(self, error: LedgerLogError) -> bool:  # noqa: PLR0911
        view = self.world.views.get(self.log_id)
        had_faults = self.process.tree.faults > self._faults
        is_deleted = view is None or view.deleted_at_ms is not None
        match error:
            case CommitUnknownError():
                return not error.definite and had_faults
            case MetadataUnavailableError() | MetadataUnknownError():
                return had_faults
            case LogNotFoundError():
                return is_deleted
            case LogExistsError():
                return True  # somebody made it first: the actor opens it
            case ProducerFencedError():
                gone = self._are_ended(getattr(error, "ledger_ids", ()))
                return is_deleted or self._was_replaced() or self._is_too_old() or gone
            case StaleCheckpointError():
                return self._has_later_batch()
            case ConcurrentCommitError() | MetadataVersionError():
                return is_deleted or self._changes_now() > self._changes
            case VersionNotAvailableError():
                return view is not None and view.oldest_moved
            case SchemaMismatchError():
                return False
            case _:
                return False

    def _was_replaced(self) -> bool:
        view = self.world.views.get(self.log_id)
        runs = view.runs_of.get(self.app or "", []) if view is not None else []
        return self.run in runs[:-1]

    def _is_too_old(self) -> bool:
        view = self.world.views[self.log_id]
        return self.world.now_ms() - self.since_ms > view.properties.staging_ttl_ms

    def _are_ended(self, ledger_ids: Sequence[int]) -> bool:
        """Whether the time of all these ledgers is over: registered, or unlisted, long ago."""
        view, now_ms = self.world.views[self.log_id], self.world.now_ms()
        properties = view.properties
        return bool(ledger_ids) and all(
            now_ms - self.world.registered_ms[i] > properties.staging_ttl_ms
            or now_ms - view.unlisted_at_ms.get(i, now_ms) >= properties.deleted_retention_ms
            for i in ledger_ids
        )

    def _has_later_batch(self) -> bool:
        view = self.world.views.get(self.log_id)
        if view is None:
            return True
        is_later = view.checks.last_batch.get(self.app or "", -1) > self.batch_id
        query = self.run.rpartition("/")[0]
        return is_later or view.last_query.get(self.app or "", query) != query
