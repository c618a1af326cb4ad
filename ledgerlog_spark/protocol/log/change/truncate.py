"""Dropping the oldest rows: truncation to an offset, and retention (LOGS.md#U4-U7).

The first step makes the version that begins at the offset, ends every version that begins below it,
and drops up to 1,000 items; what is left goes in the steps of `expiry`, here or in the sweeper
of another process (LOGS.md#U5). Nothing is deleted before the head says that it is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.change.expiry import (
    STEP_ITEMS_MAX,
    ExpiryStep,
    expiry_step,
    oldest_versions,
)
from ledgerlog_spark.protocol.log.change.head import HeadChanger
from ledgerlog_spark.protocol.log.read.versions import oldest_of
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest, PageWriter, drop_before
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind, Operation, VersionInterval
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.messages import LogEffects
    from ledgerlog_spark.protocol.log.state.walk import Walk


_IN_USE = "; rows of the ledger in use can be dropped by the leader, which closes it first"


@dataclass(frozen=True, slots=True)
class Truncated:
    """What the log is like after the first step.

    Attributes:
        version: The newest.
        start_offset: Of the newest version.
        oldest_version: The oldest that can still be read.
        unlisted: Ledgers of the items that this step dropped, see `Expired`.
        is_complete: Whether no item is left to be dropped.
        next_due_ms: By retention, when age alone may drop more; None when nothing will be. Now,
            when more was due than one call drops.
        is_more_due: By retention, whether more may be due now than one call looks at.
        untimed_to: By retention, see `RetentionMachine`.
    """

    version: int
    start_offset: int
    oldest_version: int
    unlisted: tuple[int, ...] = ()
    is_complete: bool = True
    next_due_ms: int | None = None
    is_more_due: bool = False
    untimed_to: int = 0


@dataclass(frozen=True, slots=True)
class TruncateChange:
    """The head without what lies below an offset.

    Attributes:
        head: With its start, its oldest version and its items as they are to be.
        interval: The version that begins at the offset; None when there is one, and in a leader
            log, which has no versions.
    """

    head: LogHead
    interval: VersionInterval | None

    def pages_to_merge(self) -> tuple[PageRequest, ...]:
        """Pages that have to be read before `build`."""
        new = () if self.interval is None else (self.interval,)
        return tuple(log_pages.pages_to_merge(HISTORY, self.head.history, new))

    def build(self, token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        """The new head, and the pages to write under `token` before it."""
        if self.interval is None:
            return replace(self.head, token=token), ()
        writer = PageWriter(token)
        interval = replace(self.interval, token=token)
        history = log_pages.append(HISTORY, self.head.history, (interval,), writer, loaded)
        head = replace(
            self.head,
            version=interval.version,
            commit_time_ms=interval.commit_time_ms,
            token=token,
            history=history,
        )
        return head, tuple(writer.pages)


class TruncateMachine(HeadChanger[Truncated]):
    """Ends with `Finished(Truncated)`: the log begins at the offset, or behind it.

    Or `Failed` with `ConfigurationError` (an offset that the log does not have yet),
    `LogNotFoundError`, `ConcurrentCommitError`, or the store's errors.
    """

    __slots__ = ("_history", "_offset", "_step_made")

    def __init__(self, log: str, *, offset: int, token: str) -> None:
        """Machine of one truncation.

        Args:
            log: Name, for messages.
            offset: The first row that stays.
            token: 32 random hexadecimal digits.
        """
        super().__init__(log, token=token)
        self._offset = offset
        self._step_made: ExpiryStep | None = None
        self._history: Walk[VersionInterval] | None = None

    def _target(self, head: LogHead, walked: list[Walk[Any]]) -> int:
        """The first row that stays, given the oldest items.

        Raises:
            ConfigurationError: The log does not have it yet.
        """
        del walked
        is_leader_log = head.kind is LogKind.LEADER
        if not 0 <= self._offset <= head.end_offset:
            raise ConfigurationError(
                f"log {head.name!r} cannot be truncated to offset {self._offset}: its rows that "
                f"can be dropped end at {head.end_offset}. Give an offset from "
                f"{head.start_offset} to {head.end_offset}{_IN_USE if is_leader_log else ''}",
                log=head.name,
                offset=self._offset,
                end_offset=head.end_offset,
            )
        return self._offset

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        self._history = None
        return [oldest_of(head, STEP_ITEMS_MAX)]

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        """The versions that end, when a version that there is begins at the offset or behind it."""
        offset = self._target(head, walked)
        if head.kind is LogKind.LEADER or offset > head.start_offset:
            return []
        if self._history is None:
            first = head.oldest_version
        else:
            newest = self._history.records()[-1]
            if newest.start_offset >= offset or not self._history.is_cut:
                return []
            first = newest.version + 1
        self._history = oldest_versions(head, first)
        return [self._history]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[Truncated]:
        offset = self._target(head, walked)
        history = self._history.records() if self._history is not None else ()
        oldest, interval = _oldest_left(head, history, offset, self._now_ms)
        step = expiry_step(head, oldest, walked[0])
        unchanged = step.oldest_version == head.oldest_version and interval is None
        if unchanged and step.oldest_offset == head.oldest_offset and offset <= head.start_offset:
            return self._finish(Truncated(head.version, head.start_offset, head.oldest_version))
        self._step_made = step
        shorter = replace(
            head,
            start_offset=max(head.start_offset, offset),
            oldest_version=step.oldest_version,
            oldest_offset=step.oldest_offset,
            items=drop_before(ITEMS, head.items, step.oldest_offset),
            history=drop_before(HISTORY, head.history, step.oldest_version),
        )
        return self._replace_head(TruncateChange(shorter, interval), step.unlisted)

    def _changed(self, head: LogHead) -> Truncated:
        step = self._step_made
        assert step is not None
        return Truncated(
            version=head.version,
            start_offset=head.start_offset,
            oldest_version=head.oldest_version,
            unlisted=step.unlisted,
            is_complete=step.is_last,
        )


def _oldest_left(
    head: LogHead, history: Sequence[VersionInterval], offset: int, now_ms: int
) -> tuple[VersionInterval, VersionInterval | None]:
    """The oldest version that a truncation leaves, and the same if it has to be made."""
    is_leader_log = head.kind is LogKind.LEADER
    if not is_leader_log and offset <= head.start_offset:
        return next(v for v in history if v.start_offset >= offset), None
    made = VersionInterval(
        version=head.version + 1,
        start_offset=offset,
        end_offset=head.end_offset,
        commit_time_ms=max(head.commit_time_ms + 1, now_ms),
        token=head.token,
        schema_id=head.schema_id,
        operation=Operation.TRUNCATE,
    )
    if is_leader_log:
        begun = max(head.start_offset, offset)
        return replace(made, version=head.version, start_offset=begun), None
    return made, made
