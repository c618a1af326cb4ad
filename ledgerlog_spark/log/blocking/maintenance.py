"""`LogMaintenance` without `await`, for programs and the command line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.log.maintenance.log_maintenance import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.log.maintenance.check import LogCheck
    from ledgerlog_spark.log.maintenance.log_maintenance import CopyRows, OnProgress
    from ledgerlog_spark.model import Position
    from ledgerlog_spark.protocol.log.change.truncate import Truncated
    from ledgerlog_spark.protocol.log.commit.result import CommitResult
    from ledgerlog_spark.protocol.log.state.records import Item, StagedRange, VersionInterval

T = TypeVar("T")


class BlockingLogMaintenance(ABC):
    """The part of `BlockingLog` that neither reads nor commits rows; same calls and errors.

    `on_progress` is called on the client's own thread.
    """

    def version_at(self, timestamp_ms: int) -> VersionInterval:
        """See `LogMaintenance.version_at`."""
        return self._run(lambda log: log.version_at(timestamp_ms))

    def truncate(
        self, position: Position | int, *, on_progress: OnProgress = no_progress
    ) -> Truncated:
        """See `LogMaintenance.truncate`."""
        return self._run(lambda log: log.truncate(position, on_progress=on_progress))

    def retain(self) -> Truncated:
        """See `LogMaintenance.retain`."""
        return self._run(lambda log: log.retain())

    def restore(
        self, version: int, *, copy: CopyRows | None = None, overwrite_if_changed: bool = False
    ) -> CommitResult:
        """See `LogMaintenance.restore`; `copy` is a coroutine function."""
        return self._run(
            lambda log: log.restore(version, copy=copy, overwrite_if_changed=overwrite_if_changed)
        )

    def set_properties(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """See `LogMaintenance.set_properties`."""
        return self._run(lambda log: log.set_properties(changes))

    def switch(self, job: Job, replaced: Sequence[Item], staged: StagedRange) -> CommitResult:
        """See `LogMaintenance.switch`."""
        return self._run(lambda log: log.switch(job, replaced, staged))

    def check(
        self, *, every_entry: bool = False, on_progress: OnProgress = no_progress
    ) -> LogCheck:
        """See `LogMaintenance.check`."""
        return self._run(lambda log: log.check(every_entry=every_entry, on_progress=on_progress))

    def delete_orphans(self) -> tuple[int, ...]:
        """See `LogMaintenance.delete_orphans`."""
        return self._run(lambda log: log.delete_orphans())

    def delete(self) -> None:
        """See `LogMaintenance.delete`."""
        self._run(lambda log: log.delete())

    @abstractmethod
    def _run(self, work: Callable[[Log], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns on the client's loop."""
