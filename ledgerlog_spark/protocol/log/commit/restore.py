"""Restores a version by listing its ranges again at new offsets (LOGS.md#U10-U12).

A merged range may begin before the start of the version, or end after its end. But a list contains
only whole ranges. So the part that belongs to the version is copied first, and the copy is listed
in place of the range. All other ranges are listed again unchanged, and their rows are not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ledgerlog_spark.errors import ConcurrentCommitError
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, NewVersion, listed
from ledgerlog_spark.protocol.log.commit.result import CommitResult, CommitStatus
from ledgerlog_spark.protocol.log.messages import Finished
from ledgerlog_spark.protocol.log.read.versions import check_version
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogHead,
    Operation,
    StagedRange,
    VersionInterval,
    WriteMode,
    next_version,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.transaction import Plan


@dataclass(frozen=True, slots=True)
class CutRange:
    """The part of a listed range that belongs to a version; `end_offset` is exclusive."""

    item: Item
    start_offset: int
    end_offset: int

    @property
    def offsets(self) -> tuple[int, int]:
        """Start (inclusive) and end (exclusive) of the part."""
        return self.start_offset, self.end_offset


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The version to restore, and copies of the ranges that lie only partly in this version.

    The keys of `copies` are the start and end offsets of the copied rows.
    """

    version: int
    app: str
    run: str
    planned_version: int
    copies: Mapping[tuple[int, int], StagedRange]
    overwrite_if_changed: bool = False
    password: bytes = field(repr=False, default=b"")
    expected_version: int | None = None  # the only version on which the restore may be committed


def cut_ranges(interval: VersionInterval, items: Iterable[Item]) -> tuple[CutRange, ...]:
    """Return the part in the version of each range that begins before it or ends after it."""
    start, end = interval.start_offset, interval.end_offset
    return tuple(
        CutRange(item, max(start, item.first_offset), min(end, item.end_offset))
        for item in items
        if item.first_offset < start or item.end_offset > end
    )


class RestoreMachine(CommitMachine):
    """Makes a new version with the rows of an older version; ends with `Finished(CommitResult)`.

    The status is `NOTHING_TO_COMMIT` when the newest version already has exactly these rows. Fails
    with the errors of a commit, or with `VersionNotAvailableError`. `ConcurrentCommitError` may
    mean that another process committed after the restore was planned, or merged a copied range.
    """

    def __init__(self, log: str, restore: RestoreRequest, *, token: str) -> None:
        request = CommitRequest(
            app=restore.app,
            run=restore.run,
            batch_id=0,
            ranges=tuple(restore.copies.values()),
            mode=WriteMode.OVERWRITE,
            planned_version=restore.planned_version,
            password=restore.password,
            expected_version=restore.expected_version,
        )
        super().__init__(log, request, token=token)
        self._restore = restore

    def _plan(self, head: LogHead) -> Plan[CommitResult]:
        wanted = self._restore.version
        check_version(head, wanted)
        self._check_planned(head)
        (old,) = yield from self._walk(ListWalk(HISTORY, head.history, wanted, wanted + 1))
        items = yield from self._walk(ListWalk(ITEMS, head.items, old.start_offset, old.end_offset))
        is_same = (old.start_offset, old.end_offset) == head.interval
        if is_same and old.schema_id == head.schema_id:
            result = CommitResult(CommitStatus.NOTHING_TO_COMMIT, head.version, head.end_offset)
            return Finished(result)
        interval = next_version(
            head,
            start_offset=head.end_offset,
            end_offset=head.end_offset + old.rows,
            schema_id=old.schema_id,
            operation=Operation.RESTORE,
            now_ms=self._now_ms,
        )
        again = self._items(head, old, items, interval.commit_time_ms)
        return self._changed(NewVersion(head, interval, again))

    def _check_planned(self, head: LogHead) -> None:
        """Raise an error if another process committed after the restore was planned."""
        if head.version != self._restore.planned_version and not self._restore.overwrite_if_changed:
            raise ConcurrentCommitError(
                f"log {head.name!r} is at version {head.version}, but the restore of version "
                f"{self._restore.version} was planned at version {self._restore.planned_version}: "
                "check the new commits, then restore again",
                log=head.name,
                version=head.version,
                planned_version=self._restore.planned_version,
            )

    def _items(
        self, head: LogHead, old: VersionInterval, items: Sequence[Item], commit_time_ms: int
    ) -> tuple[Item, ...]:
        """Return the items that append the version's ranges, or their copies, to the log's list."""
        cut = {part.item.first_offset: part for part in cut_ranges(old, items)}
        ranges = [
            self._copy_of(cut[item.first_offset]) if item.first_offset in cut else item
            for item in items
        ]
        rows = sum(staged.rows for staged in ranges)
        assert rows == old.rows, (rows, old)
        again = listed(head, ranges, head.schema_id, commit_time_ms)
        return tuple(
            replace(new, schema_id=item.schema_id) for new, item in zip(again, items, strict=True)
        )

    def _copy_of(self, part: CutRange) -> StagedRange:
        copy = self._restore.copies.get(part.offsets)
        if copy is None or copy.rows != part.end_offset - part.start_offset:
            raise ConcurrentCommitError(
                f"ranges of log {self.log!r} were merged while version {self._restore.version} was "
                "being restored; nothing was changed, restore it again",
                log=self.log,
                version=self._restore.version,
                retriable=True,
            )
        return copy
