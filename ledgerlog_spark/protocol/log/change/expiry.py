"""Deletes versions that were replaced long ago, and the items that only these versions name.

LOGS.md#W5, LOGS.md#Q5. From version to version, the start and the end of a version's rows never
decrease. So an item that ends at or before the start of the oldest retained version is in no
retained version.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.messages import TimeNeeded, WriteHead
from ledgerlog_spark.protocol.log.read.versions import oldest_of
from ledgerlog_spark.protocol.log.state.pages import drop_before
from ledgerlog_spark.protocol.log.state.records import Item, LogHead, LogKind, VersionInterval
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk

STEP_ITEMS_MAX = 1_000
VERSIONS_AT_ONCE = 1_000
"""Minimum number of versions that one read returns, unless fewer are left. Pages are read whole."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of one step."""

    is_changed: bool  # the head was certainly changed
    is_complete: bool  # nothing more is due now
    # ledgers of the dropped items, except ledgers with a later item that the step has read
    unlisted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpiryStep:
    """One planned step. `head` is the head after the step, but with the token before the step."""

    head: LogHead
    unlisted: tuple[int, ...]
    is_last: bool

    def changes(self, head: LogHead) -> bool:
        """Whether the step drops versions or items of `head`."""
        oldest = head.oldest_version, head.oldest_offset
        return (self.head.oldest_version, self.head.oldest_offset) != oldest


class ExpiryMachine(LogMachine[Expired]):
    """Does one step of the expiry; ends with `Finished(Expired)`.

    In the result of the last step, `is_complete` is true. After a conflict or an unknown outcome
    the step ends, and a later step reads the head again. A step needs no `Sync` before its read
    (`is_fresh`), because the write of the step fails if the head has changed since the read.
    """

    time_needed = TimeNeeded.EXACT

    def __init__(
        self, log: str, *, version_retention_ms: int | None, token: str, is_fresh: bool = True
    ) -> None:
        """Make versions expire that were replaced longer ago than `version_retention_ms`.

        If `version_retention_ms` is None, no version expires, and the step only drops items that no
        retained version names.
        """
        super().__init__(log, is_fresh=is_fresh)
        self._retention_ms = version_retention_ms
        self._token = token
        self.next_due_ms = 0  # time at which the next of the read versions expires

    def _run(self) -> Steps[Expired]:
        step = yield from self._look(self._step_of)
        found = self._head
        assert found is not None
        if not step.changes(found.value):
            return Expired(is_changed=False, is_complete=True)
        changed = replace(step.head, token=self._token)
        write = WriteHead(self._token, changed, found.version, unlisted=step.unlisted)
        if (yield from self._reply_to(write)).outcome is not MetadataOutcome.OK:
            return Expired(is_changed=False, is_complete=False)
        return Expired(is_changed=True, is_complete=step.is_last, unlisted=step.unlisted)

    def _step_of(self, head: LogHead) -> Steps[ExpiryStep]:
        versions = oldest_versions(head, head.oldest_version)
        history = yield from self._walk(versions)
        oldest = history[0]
        if self._retention_ms is not None:
            oldest = oldest_retained(history, self._now_ms - self._retention_ms)
        if head.kind is LogKind.LEADER:  # the log has one version, which begins at the head's start
            oldest = replace(oldest, start_offset=head.start_offset)
        items: ListWalk[Item] | None = None
        if oldest.start_offset != head.oldest_offset:
            items = oldest_of(head, STEP_ITEMS_MAX)
            yield from self._walk(items)
        later = [v.commit_time_ms for v in history if v.version > oldest.version]
        self.next_due_ms = min(later, default=self._now_ms) + (self._retention_ms or 0)
        step = expiry_step(head, oldest, items)
        if versions.is_cut and oldest is history[-1]:
            step = replace(step, is_last=False)  # versions that were not read may be due too
        return step


def oldest_retained(history: Sequence[VersionInterval], since_ms: int) -> VersionInterval:
    """Return the oldest version that was the newest version at `since_ms` or at a later time."""
    for version, following in itertools.pairwise(history):
        if following.commit_time_ms > since_ms:
            return version
    return history[-1]


def oldest_versions(head: LogHead, first: int) -> ListWalk[VersionInterval]:
    """Return a walk over the versions from `first` on: at least `VERSIONS_AT_ONCE`, or all."""
    return ListWalk(HISTORY, head.history, first, head.version + 1, records_min=VERSIONS_AT_ONCE)


def expiry_step(
    head: LogHead, oldest: VersionInterval, listed: ListWalk[Item] | None
) -> ExpiryStep:
    """Return the next step, after which `oldest` is the oldest version.

    `listed` contains the oldest items: all items, or more than `STEP_ITEMS_MAX`. It is None if no
    item is due.
    """
    items = listed.records() if listed is not None else ()
    # An item that begins below the offset and ends after it stays whole (LOGS.md#U6).
    due = [item for item in items if item.end_offset <= oldest.start_offset]
    dropped = due[:STEP_ITEMS_MAX]
    is_last = len(due) <= STEP_ITEMS_MAX
    offset = oldest.start_offset if is_last else dropped[-1].end_offset
    near = (*items, *head.items.recent)
    kept = {item.ledger_id for item in near if item.end_offset > offset}
    ledgers = dict.fromkeys(item.ledger_id for item in dropped)
    oldest_offset = max(offset, head.oldest_offset)
    shorter = replace(
        head,
        oldest_version=oldest.version,
        oldest_offset=oldest_offset,
        items=drop_before(ITEMS, head.items, oldest_offset),
        history=drop_before(HISTORY, head.history, oldest.version),
    )
    return ExpiryStep(shorter, tuple(each for each in ledgers if each not in kept), is_last)
