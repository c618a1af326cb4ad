"""Mutations of the log layer, and the violation that each must cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import ConcurrentCommitError
from ledgerlog_spark.log.maintenance import sweeper
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.change import truncate as log_truncate
from ledgerlog_spark.protocol.log.change.expiry import expiry_step
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit import commit as log_commit
from ledgerlog_spark.protocol.log.commit import plan as log_commit_plan
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, listed
from ledgerlog_spark.protocol.log.commit.restore import RestoreMachine
from ledgerlog_spark.protocol.log.commit.result import CommitResult, CommitStatus, KnownLog
from ledgerlog_spark.protocol.log.messages import DropLedger, Finished, Written
from ledgerlog_spark.protocol.log.state.records import NO_SCHEMA
from ledgerlog_spark.protocol.log.sweep import PagesSweep
from ledgerlog_spark.protocol.log.transaction import HeadChange, HeadTransaction
from tests.sim.log import sealing

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def sweep_pages_blindly(patch: pytest.MonkeyPatch) -> None:
    def look_without_touching(self: PagesSweep) -> Any:
        yield from ()
        return self._tokens

    patch.setattr(PagesSweep, "_touch", look_without_touching)


def commit_assumes_failure(patch: pytest.MonkeyPatch) -> None:
    def failed(self: CommitMachine, write: Any) -> Any:
        raise ConcurrentCommitError("no answer, so it failed")

    patch.setattr(CommitMachine, "_on_unknown", failed)


def commit_assumes_success(patch: pytest.MonkeyPatch) -> None:
    def succeeded(self: CommitMachine, write: Any) -> Any:
        yield from ()
        return Finished(CommitResult(CommitStatus.COMMITTED, write.head.version, 0))

    patch.setattr(CommitMachine, "_on_unknown", succeeded)


def replay_batch_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitMachine, "_is_replay", lambda *_: False)


def zombie_takes_epoch_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochMachine, "_is_zombie", lambda *_: False)


def commit_forgets_registration_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitMachine, "_missing", lambda *_: [])


def zombie_starts_from_what_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownLog, "may_precede", lambda *_: True)


def seal_ignores_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sealing, "check_close", lambda *_, **__: None)


def merge_blind_switch(patch: pytest.MonkeyPatch) -> None:
    """Replaces ranges even if the list has changed."""

    def found(self: MergeMachine, items: Any) -> Any:
        wanted = self._merge.replaced
        first, end = wanted[0].first_offset, wanted[-1].end_offset
        return tuple(i for i in items if i.end_offset > first and i.first_offset < end) or wanted

    patch.setattr(MergeMachine, "_found", found)


def merge_renumbers(patch: pytest.MonkeyPatch) -> None:
    """Gives the merged rows new offsets, as a commit does."""

    def merged(self: MergeMachine, head: Any, replaced: Any) -> Any:
        (item,) = listed(head, (self._merge.staged,), replaced[0].schema_id, 1)
        return item

    patch.setattr(MergeMachine, "_merged", merged)


def merge_deletes_at_once(patch: pytest.MonkeyPatch) -> None:
    """Gives readers with an earlier plan no time to finish."""
    patch.setattr(
        sweeper,
        "due_ledgers",
        lambda marked, *_: {mark.ledger_id: mark.marked_ms for mark in marked},
    )


def merge_forgets_to_mark(patch: pytest.MonkeyPatch) -> None:
    """Removes ledgers from the list without a mark."""
    prepare = MergeMachine._prepare

    def without_marks(self: MergeMachine, change: Any) -> Any:
        return prepare(self, replace(change, unlisted=()))

    patch.setattr(MergeMachine, "_prepare", without_marks)


def truncate_deletes_first(patch: pytest.MonkeyPatch) -> None:
    """Deletes ledgers, then changes the head that lists them."""
    patch.setattr(TruncateMachine, "_prepare", deleting_first)


def deleting_first(self: TruncateMachine, change: HeadChange[Any]) -> Any:
    """Delete what the change takes off the list, then prepare it."""
    for ledger_id in reversed(change.unlisted):
        yield from self._reply_to(DropLedger(ledger_id))
    return (yield from HeadTransaction._prepare(self, change))


def retention_drops_retained_version(patch: pytest.MonkeyPatch) -> None:
    """Drops items, but still lists the versions that need them."""

    def keeps_versions(head: Any, oldest: Any, items: Any) -> Any:
        step = expiry_step(head, oldest, items)
        kept = replace(step.head, oldest_version=head.oldest_version, history=head.history)
        return replace(step, head=kept)

    patch.setattr(log_truncate, "expiry_step", keeps_versions)


def restore_does_not_look_at_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RestoreMachine, "_check_planned", lambda *_: None)


def expected_version_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_commit, "check_expected", lambda *_: None)


def commit_is_dated_by_a_clock_that_is_ahead(patch: pytest.MonkeyPatch) -> None:
    plan = log_commit_plan.plan_commit

    def ahead(head: Any, request: Any, *, now_ms: int, current_schema: Any) -> Any:
        return plan(head, request, now_ms=now_ms + 60_000, current_schema=current_schema)

    patch.setattr(log_commit, "plan_commit", ahead)


def commit_does_not_store_its_password(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitMachine, "_stored", lambda _self, head: head)


def first_commit_stands_beside_others(patch: pytest.MonkeyPatch) -> None:
    """A job that was planned on an empty log replaces the columns of commits made meanwhile."""
    schema = log_commit_plan._schema

    def blindly(head: Any, request: Any, current: Any) -> Any:
        return schema(head, replace(request, is_first=False), current)

    patch.setattr(log_commit_plan, "_schema", blindly)


def columns_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Rows are listed with the present schema of the log."""
    schema = log_commit_plan._schema

    def any_schema(head: Any, request: Any, current: Any) -> Any:
        if head.schema_id not in {request.base_schema_id, NO_SCHEMA}:
            return head.schema_id, ()
        return schema(head, request, current)

    patch.setattr(log_commit_plan, "_schema", any_schema)


def first_columns_are_nothing_to_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitRequest, "is_empty", property(lambda self: self._appends_nothing))


def change_stands_still_after_a_conflict(patch: pytest.MonkeyPatch) -> None:
    go_on = HeadTransaction._go_on

    def stands_still(self: Any, reply: Any) -> Any:
        effects = go_on(self, reply)
        is_refused = isinstance(reply, Written) and reply.outcome is MetadataOutcome.CONFLICT
        return [] if is_refused else effects

    patch.setattr(HeadTransaction, "_go_on", stands_still)


def commit_ignores_the_password(patch: pytest.MonkeyPatch) -> None:
    """No commit compares the password."""
    patch.setattr(log_commit, "check_password", lambda *_: None)


def old_ledgers_passwords_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """In a log whose head has no password information, the ledgers' passwords are not compared."""
    patch.setattr(log_commit, "compare_password", lambda *_: None)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    sweep_pages_blindly: "is missing",
    commit_assumes_failure: "said to have failed|failed for certain",
    commit_assumes_success: "was said to be committed",
    replay_batch_again: "was committed twice|after batch",
    zombie_takes_epoch_back: "took over twice",
    commit_forgets_registration_check: "was deleted",
    zombie_starts_from_what_is_known: "zombie|was committed twice|after batch",
    seal_ignores_floor: "below its listed end",
    merge_blind_switch: "offsets have|rows at the end|items without a version",
    merge_renumbers: "rows at the end are not listed|offsets have|items without|begins too late",
    merge_deletes_at_once: "went while it was read",
    merge_forgets_to_mark: "is forgotten|stay for ever",
    truncate_deletes_first: "was deleted|went while it was read",
    retention_drops_retained_version: "lost its rows",
    restore_does_not_look_at_what_was_committed: "had not seen",
    expected_version_is_not_compared: "is not the expected",
    commit_is_dated_by_a_clock_that_is_ahead: "dated ahead",
    commit_does_not_store_its_password: "without a word of their password",
    first_commit_stands_beside_others: "took the columns",
    columns_are_not_compared: "listed under schema|the columns are",
    first_columns_are_nothing_to_commit: "something to commit",
    change_stands_still_after_a_conflict: "stands still",
    commit_ignores_the_password: "wrong password|two passwords",
    old_ledgers_passwords_are_not_compared: "wrong password|two passwords",
}
