"""Drops the oldest rows, for truncation to an offset and for retention (LOGS.md#U4-U7).

This module contains the first step, which drops at most 1,000 items. Steps of `expiry` drop the
other items (LOGS.md#U5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.change.expiry import (
    STEP_ITEMS_MAX,
    expiry_step,
    oldest_versions,
)
from ledgerlog_spark.protocol.log.commit.plan import NewVersion
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import Finished
from ledgerlog_spark.protocol.log.read.versions import oldest_of
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogHead,
    LogKind,
    Operation,
    VersionInterval,
    next_version,
)
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.transaction import HeadTransaction, Plan, rewritten

_IN_USE = "; only the leader can delete rows of the ledger in use, after it has closed this ledger"


@dataclass(frozen=True, slots=True)
class Truncated:
    """The state of the log after the first step.

    Attributes:
        version: The newest version.
        start_offset: First offset of the newest version.
        oldest_version: The oldest version that can still be read.
        unlisted: Ledgers of the items that this step dropped, except ledgers with a later item that
            the step has read.
        is_complete: Whether all items that had to be dropped were dropped.
        next_due_ms: For retention, the time at which the next item becomes too old. This is None if
            no item is ever dropped because of its age, and the present time if `is_more_due`.
        is_more_due: For retention, whether items that were not read may be due now.
        untimed_to: For retention, the offset up to which the items contain no time of their rows.
    """

    version: int
    start_offset: int
    oldest_version: int
    unlisted: tuple[int, ...] = ()
    is_complete: bool = True
    next_due_ms: int | None = None
    is_more_due: bool = False
    untimed_to: int = 0


class TruncateMachine(HeadTransaction[Truncated]):
    """Truncates a log to an offset; ends with `Finished(Truncated)`.

    After that, the log begins at the offset. If the log already began at a later offset, its
    beginning does not change. Fails with `ConfigurationError` (the offset is negative, or above the
    end of the rows that can be dropped), `LogNotFoundError`, `ConcurrentCommitError`, or the
    store's errors.
    """

    def __init__(self, log: str, *, offset: int, token: str) -> None:
        super().__init__(log, token=token)
        self._offset = offset

    def _plan(self, head: LogHead) -> Plan[Truncated]:
        oldest = oldest_of(head, STEP_ITEMS_MAX)
        yield from self._walk(oldest)
        if not 0 <= self._offset <= head.end_offset:
            raise ConfigurationError(
                f"log {head.name!r} cannot be truncated to offset {self._offset}: its rows that "
                f"can be dropped end at {head.end_offset}. Set an offset from {head.start_offset} "
                f"to {head.end_offset}{_IN_USE if head.kind is LogKind.LEADER else ''}",
                log=head.name,
                offset=self._offset,
                end_offset=head.end_offset,
            )
        return (yield from self._drop(head, oldest, self._offset))

    def _drop(self, head: LogHead, items: ListWalk[Item], offset: int) -> Plan[Truncated]:
        """Drop the rows below the offset. `items` are the oldest items."""
        history = yield from self._ending(head, offset)
        oldest, interval = _oldest_left(head, history, offset, self._now_ms)
        step = expiry_step(head, oldest, items)
        if interval is None and not step.changes(head) and offset <= head.start_offset:
            return Finished(self._state_of(head))
        shorter = replace(step.head, start_offset=max(head.start_offset, offset))
        change = rewritten(
            shorter,
            lambda made: replace(
                self._state_of(made), unlisted=step.unlisted, is_complete=step.is_last
            ),
            unlisted=step.unlisted,
        )
        if interval is None:
            return change
        # The new version is the only version that is left, so the history has no page to merge.
        return replace(change, build=NewVersion(shorter, interval).build)

    def _state_of(self, head: LogHead) -> Truncated:
        return Truncated(head.version, head.start_offset, head.oldest_version)

    def _ending(self, head: LogHead, offset: int) -> Steps[tuple[VersionInterval, ...]]:
        """Return the versions that are dropped, and the next version, which stays.

        The result is empty when a new version will begin at the offset. It is also empty in a
        leader log, which has no versions.
        """
        history: tuple[VersionInterval, ...] = ()
        if head.kind is LogKind.LEADER or offset > head.start_offset:
            return history
        first = head.oldest_version
        while True:
            walk = oldest_versions(head, first)
            history = yield from self._walk(walk)
            newest = history[-1]
            if newest.start_offset >= offset or not walk.is_cut:
                return history
            first = newest.version + 1


def _oldest_left(
    head: LogHead, history: Sequence[VersionInterval], offset: int, now_ms: int
) -> tuple[VersionInterval, VersionInterval | None]:
    """Return the oldest version that remains, and the created version (None if none is created)."""
    is_leader_log = head.kind is LogKind.LEADER
    if not is_leader_log and offset <= head.start_offset:
        return next(v for v in history if v.start_offset >= offset), None
    made = next_version(
        head,
        start_offset=offset,
        end_offset=head.end_offset,
        schema_id=head.schema_id,
        operation=Operation.TRUNCATE,
        now_ms=now_ms,
    )
    if is_leader_log:
        begun = max(head.start_offset, offset)
        return replace(made, version=head.version, start_offset=begun), None
    return made, made
