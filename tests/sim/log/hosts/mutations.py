"""Mutations of the log layer's hosts and stores, and the violation that each must cause."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.log import clock
from ledgerlog_spark.log.committing import commits, new_log
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.maintenance import sweeper
from ledgerlog_spark.log.maintenance.sweeper import _LogSweep
from ledgerlog_spark.log.retries import Retries
from ledgerlog_spark.metadata.logs.producers import LogProducers
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.tree import children_of
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import password as log_password
from ledgerlog_spark.protocol.log.commit import commit as log_commit
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from tests.sim.log.hosts import ledgers

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def shrink_forgets_the_last_run(patch: pytest.MonkeyPatch) -> None:
    """Then it is lost which run's batches are in the log."""

    async def shrink(self: _LogSweep, app: str, found: Any, now_ms: int) -> None:
        idle_ms = now_ms - found.value.time_ms
        if found.value.runs and idle_ms > self._properties.txn_retention_ms:
            shrunk = replace(found.value, runs=())
            await self._host.store.producers.write(self._log_id, app, shrunk, found.version)

    patch.setattr(_LogSweep, "_shrink", shrink)


def retention_by_local_clock(patch: pytest.MonkeyPatch) -> None:
    """Retention uses the wall clock of its process."""

    async def time(self: LogHost, needed: Any, outcome: Any) -> Any:
        del self, needed
        return outcome, clock.now_ms()

    patch.setattr(LogHost, "_time", time)


def store_clock_is_the_local_one(patch: pytest.MonkeyPatch) -> None:
    async def now_ms(self: LogStore, log_id: str) -> int:
        del self, log_id
        return clock.now_ms()

    patch.setattr(LogStore, "now_ms", now_ms)


def deleted_log_is_removed_from_its_leaves(patch: pytest.MonkeyPatch) -> None:
    """Pages are deleted before the head. A crash leaves a head without the list of its ledgers."""

    async def remove(self: LogStore, log_id: str) -> bool:
        paths = self._paths
        for app in await self.producers.names(log_id):
            found = await self.producers.read(log_id, app)
            if found is not None:
                await self.producers.delete(log_id, app, found.version)
        await self._nodes.delete(paths.producers(log_id))
        for name in await children_of(self._tree, paths.log(log_id)):
            path = f"{paths.log(log_id)}/{name}"
            if path not in {paths.head(log_id), paths.deleted(log_id)}:
                await self._nodes.delete_below(path)
                await self._nodes.delete(path)
        for path in (paths.head(log_id), paths.deleted(log_id), paths.log(log_id)):
            await self._nodes.delete(path)
        return True

    patch.setattr(LogStore, "remove_log", remove)


def rebase_concludes_from_an_old_head(patch: pytest.MonkeyPatch) -> None:
    """The answer of a server that is behind is used as the newest state."""

    patch.setattr(CommitMachine, "_concludes", lambda _: True)


def conflict_is_taken_for_an_outage(patch: pytest.MonkeyPatch) -> None:
    """Every write that conflicts with another write fails."""
    write_head = LogHost._write_head

    async def written(self: LogHost, request: Any) -> Any:
        reply = await write_head(self, request)
        if reply.outcome is MetadataOutcome.CONFLICT:
            return replace(reply, outcome=MetadataOutcome.UNAVAILABLE)
        return reply

    patch.setattr(LogHost, "_write_head", written)


def marks_have_no_grace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sweeper, "due_ledgers", lambda marked, *_: {m.ledger_id: m.marked_ms for m in marked}
    )


def jobs_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def keep(*_: Any) -> None:
        return

    patch.setattr(_LogSweep, "_forget_job", keep)


def open_ledgers_are_deleted(patch: pytest.MonkeyPatch) -> None:
    """A live writer continues to write to a deleted ledger."""

    async def drop(self: LogHost, ledger_id: int) -> None:
        await self.ledgers.delete_ledger(ledger_id)
        await self.store.producers.forget_mark(self.log_id, ledger_id)

    patch.setattr(LogHost, "drop_ledger", drop)


def released_ledgers_get_no_mark(patch: pytest.MonkeyPatch) -> None:
    """The uncommitted ledgers of a forgotten job are never deleted."""
    delete = LogProducers.delete

    async def unmarked(
        self: Any, log_id: str, app: str, version: Any, gone: Any = (), released: Any = ()
    ) -> None:
        await delete(self, log_id, app, version, (), (*gone, *released))

    patch.setattr(LogProducers, "delete", unmarked)


def unlisted_ledgers_get_no_mark(patch: pytest.MonkeyPatch) -> None:
    write_head = LogStore.write_head

    async def unmarked(self: Any, log_id: str, write: Any) -> Any:
        return await write_head(self, log_id, replace(write, unlisted=()))

    patch.setattr(LogStore, "write_head", unmarked)


def registration_ignores_the_producer(patch: pytest.MonkeyPatch) -> None:
    """A replaced run still creates ledgers, which are never sealed."""
    register = LogProducers.register_ledger

    async def unchecked(self: Any, log_id: str, app: str, epoch: int, _: Any, *more: Any) -> Any:
        found = await self.read(log_id, app)
        assert found is not None
        return await register(self, log_id, app, epoch, found.version, *more)

    patch.setattr(LogProducers, "register_ledger", unchecked)


def mark_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """A deletion uses the old time of a mark that was renewed later."""
    drop = LogHost._drop_ledger

    async def blindly(self: LogHost, request: Any) -> Any:
        return await drop(self, replace(request, marked_ms=None))

    patch.setattr(LogHost, "_drop_ledger", blindly)


def any_password_begins_a_job(patch: pytest.MonkeyPatch) -> None:
    """A job with a wrong password begins and commits."""
    for module in (commits, log_commit):
        patch.setattr(module, "check_password", lambda *_: None)


def any_password_reads_a_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledgers, "check_ledger_password", lambda *_: None)


def password_is_kept_in_the_head(patch: pytest.MonkeyPatch) -> None:
    check = log_password.password_check

    def shown(password: bytes, salt: bytes) -> str:
        scheme = check(password, salt).rpartition(":")[0]
        return f"{scheme}:{password.decode()}" if password else check(password, salt)

    patch.setattr(log_password, "password_check", shown)


def failed_write_deletes_the_log_of_others(patch: pytest.MonkeyPatch) -> None:
    """The deletion does not compare the parent node of the producers."""
    delete = LogStore.delete_log

    async def blindly(self: LogStore, head: Any, version: Any, **_: Any) -> Any:
        return await delete(self, head, version)

    patch.setattr(LogStore, "delete_log", blindly)


def failed_write_deletes_its_producer_first(patch: pytest.MonkeyPatch) -> None:
    """Then the log may stay, and a new producer record may have the same version numbers."""
    read = new_log._producers_of

    async def deleted(host: LogHost, job: Any) -> Any:
        found = await read(host, job)
        for app, version in (found or {}).items():
            with contextlib.suppress(MetadataVersionError):
                await host.store.producers.delete(host.log_id, app, version)
        return None if found is None else {}

    patch.setattr(new_log, "_producers_of", deleted)


def failed_write_deletes_what_was_changed(patch: pytest.MonkeyPatch) -> None:
    """A log without a commit is deleted, although another process uses it."""
    patch.setattr(new_log, "is_unchanged", lambda head: head.version == 0)


def turn_never_comes(patch: pytest.MonkeyPatch) -> None:
    """A writer waits in the queue behind a member that may have died."""

    async def wait(self: Retries) -> None:
        del self
        await asyncio.get_running_loop().create_future()

    patch.setattr(Retries, "_in_turn", lambda self, _attempt_ms: wait(self))


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    shrink_forgets_the_last_run: "the last run is forgotten",
    retention_by_local_clock: "dropped|expired|dated",
    store_clock_is_the_local_one: "dropped|expired|after it was unlisted|forgotten|ahead",
    deleted_log_is_removed_from_its_leaves: "stay for ever|last sweeps failed",
    rebase_concludes_from_an_old_head: "nothing explains",
    conflict_is_taken_for_an_outage: "nothing explains",
    marks_have_no_grace: "after it was unlisted|went while it was read",
    jobs_are_never_forgotten: "never forgotten",
    open_ledgers_are_deleted: "while it was open",
    released_ledgers_get_no_mark: "is forgotten|left or gone",
    unlisted_ledgers_get_no_mark: "has no mark|is forgotten|left or gone",
    registration_ignores_the_producer: "of epoch",
    mark_is_not_looked_at_again: "after it was unlisted",
    any_password_begins_a_job: "let in|wrong password|two passwords",
    any_password_reads_a_ledger: "wrong password",
    password_is_kept_in_the_head: "shows a password",
    failed_write_deletes_the_log_of_others: "a failed write deleted the log of",
    failed_write_deletes_its_producer_first: r"producers \[.* are forgotten",
    failed_write_deletes_what_was_changed: "a changed log was deleted",
    turn_never_comes: "never end|nothing explains",
}
