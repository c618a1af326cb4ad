"""Checks failures of calls: the reported cause must have happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    CommitUnknownError,
    ConcurrentCommitError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LogExistsError,
    LogNotFoundError,
    LogTimeoutError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
    NeedsOperatorError,
    NotEnoughBookiesError,
    ProducerFencedError,
    StaleCheckpointError,
    UnauthorizedError,
    VersionNotAvailableError,
)
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from tests.sim.log import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.state.records import LogHead
    from tests.sim.log.hosts.process import Process

RETRIES_WITHOUT_FAULTS = 5


@dataclass
class Call:
    """One call of an actor, with the state at its beginning.

    Attributes:
        log_id: The id of the log.
        app: The producer; None for a call without a producer.
        run: The run of the producer.
        batch_id: The id of the batch; -1 for a call without a batch.
        since_ms: Time at which its job began, to explain that something is too old.
        ledger_id: The ledger of the call; -1 for no ledger.
        password: The password of the call.
        at_ms: The requested time.
        is_limited: Whether the call has a short time limit.
        since_faults: Number of faults of its process before the call; -1 for the present number.
    """

    world: Any
    process: Process
    log_id: str
    app: str | None = None
    run: str = ""
    batch_id: int = -1
    since_ms: int = 0
    ledger_id: int = -1
    password: bytes = b""
    at_ms: int = 0
    is_limited: bool = False
    since_faults: int = -1

    def __post_init__(self) -> None:
        self.since_ms = self.since_ms or self.world.now_ms()
        if self.since_faults < 0:
            self.since_faults = self.process.tree.faults
        self._changes = self._changes_now()
        self._take_overs = len(self._runs())

    def _changes_now(self) -> int:
        view = self.world.views.get(self.log_id)
        return view.head_changes if view is not None else 0

    @property
    def had_faults(self) -> bool:
        """Whether a request of its process had a fault after the call began."""
        return self.process.tree.faults > self.since_faults

    @property
    def is_password_right(self) -> bool:
        """Whether the password is that of the ledger or, without a ledger, that in the head."""
        ledger = self.world.ledgers.get(self.ledger_id)
        if ledger is not None:
            return ledger.password == self.password
        view = self.world.views.get(self.log_id)
        stored = view.head.properties.get(PASSWORD_CHECK) if view is not None else None
        return stored is None or rows.is_password(stored, self.password)

    def check_password(self, head: LogHead) -> None:
        """Check that a call that used this head and continued had the right password."""
        stored = head.properties.get(PASSWORD_CHECK)
        is_right = stored is None or rows.is_password(stored, self.password)
        self.world.require(is_right, "a wrong password was let in")

    def judge(self, error: LedgerLogError) -> None:
        """Raise a violation unless something explains the failure."""
        if self.process.has_crashed:
            return
        self.world.counts[f"failed: {type(error).__name__}"] += 1
        self.world.require(not rows.leaks_in(error), f"{type(error).__name__} shows a password")
        if not self._is_explained(error):
            raise self.world.violation(f"nothing explains {error!r}") from error

    def judge_in_a_pass(self, error: LedgerLogError, since: Call) -> None:
        """Do the same as `judge` for a pass over all logs that began with `since`."""
        if self.process.has_crashed:
            return
        others = [view for view in self.world.views.values() if view.deleted_at_ms is not None]
        gone = isinstance(error, LogNotFoundError | MetadataVersionError) and bool(others)
        if not gone:
            since.judge(error)

    def _is_explained(self, error: LedgerLogError) -> bool:  # noqa: PLR0911
        view = self.world.views.get(self.log_id)
        had_faults = self.had_faults
        is_deleted = view is None or view.deleted_at_ms is not None
        match error:
            case CommitUnknownError():
                return not error.definite and (had_faults or self.is_limited)
            case LogTimeoutError():
                return self.is_limited
            case MetadataUnavailableError() | MetadataUnknownError():
                return had_faults
            case LogNotFoundError():
                return is_deleted or self._wrote_another()
            case LogExistsError():
                return True  # another process created it first, and the actor opens it
            case ProducerFencedError():
                gone = self._are_ended(getattr(error, "ledger_ids", ()))
                return is_deleted or self._was_replaced() or self._is_too_old() or gone
            case StaleCheckpointError():
                return self._has_later_batch()
            case ConcurrentCommitError() | MetadataVersionError():
                return is_deleted or self._changes_now() > self._changes
            case VersionNotAvailableError():
                is_before = view is not None and self.at_ms < view.made_at_ms
                return view is not None and (view.oldest_moved or is_before)
            case UnauthorizedError():
                return error.definite and not self.is_password_right
            case LedgerNotFoundError():
                ledger = self.world.ledgers.get(self.ledger_id)
                return ledger is not None and ledger.is_deleted
            case LedgerRecoveryError() | NeedsOperatorError() | NotEnoughBookiesError():
                return had_faults
            case LedgerFencedError() | LedgerClosedError():
                ledger = self.world.ledgers.get(getattr(error, "ledger_id", -1))
                return ledger is not None and ledger.sealed_at is not None
            case _:
                return False

    def _wrote_another(self) -> bool:
        """Whether its run may have written a deleted log of the same name."""
        views = self.world.views.values()
        return self.app == "stream" and any(view.deleted_at_ms is not None for view in views)

    def _was_replaced(self) -> bool:
        """Whether another run took over after its run, and was current at any time of the call."""
        runs = self._runs()
        first = max(self._take_overs - 1, 0)
        return any(
            runs[place] != self.run and self.run in runs[:place]
            for place in range(first, len(runs))
        )

    def _runs(self) -> list[str]:
        """Return all runs that took over its producer, in order."""
        view = self.world.views.get(self.log_id)
        return view.runs_of.get(self.app or "", []) if view is not None else []

    def _is_too_old(self) -> bool:
        view = self.world.views[self.log_id]
        return self.world.now_ms() - self.since_ms > view.properties.staging_ttl_ms

    def _are_ended(self, ledger_ids: Sequence[int]) -> bool:
        """Whether the grace periods of all these ledgers are over."""
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
        # Another query may have taken over without a commit. The producer record names it.
        runs = self._runs()
        is_replaced = bool(runs) and runs[-1].rpartition("/")[0] != query
        return is_later or is_replaced or view.last_query.get(self.app or "", query) != query
