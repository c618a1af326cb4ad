"""Runs the machines of `protocol/log/` for one log, and performs their requests on a log store.

The host performs one request at a time, and each request gets one reply. An error of the store
becomes the outcome of a reply. Some errors, such as a refused access or a bug, have no matching
outcome. Such an error ends the run of the machine, and `LogHost.run` raises the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from ledgerlog_spark.errors import (
    LedgerLogError,
    LedgerNotFoundError,
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
    WireFormatError,
)
from ledgerlog_spark.log.failpoints import reach
from ledgerlog_spark.log.maintenance.sweep_memory import PassClock
from ledgerlog_spark.log.ports import Ledgers
from ledgerlog_spark.log.retries import Retries
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.machine import LogMachine
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
from ledgerlog_spark.protocol.log.state.records import ProducerRecord
from ledgerlog_spark.waits import Deadline

R = TypeVar("R")
T = TypeVar("T")

_OUTCOMES: tuple[tuple[type[LedgerLogError], MetadataOutcome], ...] = (
    (MetadataVersionError, MetadataOutcome.CONFLICT),
    (MetadataFormatError, MetadataOutcome.UNREADABLE),
    (WireFormatError, MetadataOutcome.UNREADABLE),
    (MetadataUnavailableError, MetadataOutcome.UNAVAILABLE),
    (MetadataUnknownError, MetadataOutcome.UNKNOWN),
)
CHANGE_TIMEOUT_MS = 120_000
"""Time limit of a change of a log, including the wait in the log's queue of writers (`retries`)."""

_RETRIED = {MetadataOutcome.CONFLICT, MetadataOutcome.UNAVAILABLE, MetadataOutcome.UNKNOWN}


class LogHost:
    """Runs the machines of one log, and provides the objects that all parts of the log need."""

    def __init__(
        self,
        name: str,
        log_id: str,
        *,
        store: LogStore,
        ledgers: Ledgers,
        keeps_pages: bool = False,
        random: Random | None = None,
        clock: PassClock | None = None,
    ) -> None:
        """Create a host of one log.

        If `keeps_pages` is true, each page is read only once for all machines, because pages never
        change. But the pages stay in memory. Therefore use `keeps_pages` only for a few machines
        that run one after another on almost the same head.
        """
        self.name = name
        self.log_id = log_id
        self.store = store
        self.ledgers = ledgers
        self.random = random or Random()  # noqa: S311 (spreads retries)
        self._kept_pages: Loaded | None = {} if keeps_pages else None
        self.clock = clock or store  # each pass of maintenance uses a separate clock
        self._carry_out: dict[type[Any], Callable[[Any], Awaitable[m.LogReply]]] = {
            m.Sync: self._sync,
            m.ReadHead: self._read_head,
            m.ReadProducer: self._read_producer,
            m.ReadRegistered: self._read_registered,
            m.ReadPages: self._read_pages,
            m.ReadPassword: self._read_password,
            m.WritePages: self._write_pages,
            m.WriteHead: self._write_head,
            m.WriteProducer: self._write_producer,
            m.ReadStaged: self._read_staged,
            m.ReadRegistrations: self._read_registrations,
            m.TouchPages: self._touch_pages,
            m.DeletePages: self._delete_pages,
            m.DropLedger: self._drop_ledger,
        }

    async def run(self, machine: LogMachine[R], *, timeout_ms: int | None = None) -> R:
        """Run the machine. Return its result, or raise its error.

        If `timeout_ms` is None, only the limits of the machine apply: each request has a deadline,
        and the number of attempts is limited. Otherwise the call raises LogTimeoutError after this
        time, or perhaps CommitUnknownError in a commit.
        """
        self.ledgers.check_open()
        seconds = None if timeout_ms is None else timeout_ms / 1e3
        deadline = Deadline(seconds, lambda: machine.give_up(timeout_ms or 0))
        async with self.retries() as retries, deadline:
            (effect,) = machine.start()
            while not isinstance(effect, m.Finished | m.Failed):
                reply = await self.perform(effect)
                is_of_head = isinstance(effect, m.WriteHead)
                (effect,) = machine.handle(reply)
                if reply.outcome in _RETRIED and not machine.has_ended:
                    await retries.after(reply.outcome, is_of_head=is_of_head)
        if isinstance(effect, m.Failed):
            raise effect.error
        return effect.result

    async def perform(self, effect: m.LogRequest[Any]) -> m.LogReply:
        """Perform one request once. Return its reply, even if the request failed."""
        return await self._carry_out[type(effect)](effect)

    @contextlib.asynccontextmanager
    async def retries(self) -> AsyncIterator[Retries]:
        """Yield the retries of one change of the log.

        After the change, the writer leaves the queue.
        """
        retries = Retries(self.store, self.log_id, self.random)
        try:
            yield retries
        finally:
            await retries.end()

    async def _sync(self, effect: m.Sync) -> m.Synced:
        outcome, _ = await outcome_of(self.store.sync())
        return m.Synced(effect.request, outcome)

    async def _read_head(self, effect: m.ReadHead) -> m.HeadRead:
        outcome, head = await outcome_of(self.store.read_head(self.log_id))
        outcome, now_ms = await self._time(effect.time, _gone(outcome, head))
        return m.HeadRead(effect.request, outcome, head, now_ms)

    async def _read_producer(self, effect: m.ReadProducer) -> m.ProducerRead:
        outcome, found = await outcome_of(self.store.producers.read(self.log_id, effect.app))
        outcome, now_ms = await self._time(effect.time, _gone(outcome, found))
        return m.ProducerRead(effect.request, outcome, found, now_ms)

    async def _time(
        self, needed: m.TimeNeeded, outcome: MetadataOutcome
    ) -> tuple[MetadataOutcome, int]:
        """Read the store's time if a reply needs it.

        Return the outcome of the reply, and the time.
        """
        if needed is m.TimeNeeded.NONE or outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            return outcome, 0
        if needed is m.TimeNeeded.RECENT:
            read, now_ms = await outcome_of(self.store.recent_ms())
        elif outcome is MetadataOutcome.OK:
            read, now_ms = await outcome_of(self.clock.now_ms(self.log_id))
        else:
            return outcome, 0
        if read is not MetadataOutcome.OK or now_ms is None:
            # A write without data reads the clock. The outcome of this write does not matter.
            return MetadataOutcome.UNAVAILABLE, 0
        return outcome, now_ms

    async def _read_registered(self, effect: m.ReadRegistered) -> m.RegisteredRead:
        outcome, ids = await outcome_of(self.store.producers.registered(self.log_id, effect.app))
        return m.RegisteredRead(effect.request, outcome, tuple(ids or ()))

    async def _read_pages(self, effect: m.ReadPages) -> m.PagesRead:
        pages: Loaded = {} if self._kept_pages is None else self._kept_pages
        missing = [page for page in effect.pages if _key_of(page) not in pages]
        if missing:
            outcome, read = await outcome_of(self.store.read_pages(self.log_id, missing))
            if read is None:
                return m.PagesRead(effect.request, _gone(outcome, read), ())
            pages.update(zip(map(_key_of, missing), read, strict=True))
        found = tuple(pages[_key_of(page)] for page in effect.pages)
        return m.PagesRead(effect.request, MetadataOutcome.OK, found)

    async def _read_password(self, effect: m.ReadPassword) -> m.PasswordRead:
        try:
            outcome, metadata = await outcome_of(self.ledgers.ledger_metadata(effect.ledger_id))
        except LedgerNotFoundError:
            outcome, metadata = MetadataOutcome.GONE, None
        if metadata is None:
            return m.PasswordRead(effect.request, outcome)
        if not metadata.has_password:
            return m.PasswordRead(effect.request, MetadataOutcome.GONE)
        return m.PasswordRead(effect.request, outcome, metadata.password)

    async def _write_pages(self, effect: m.WritePages) -> m.PagesWritten:
        work = self.store.write_pages(self.log_id, effect.token, effect.pages)
        outcome, version = await outcome_of(work)
        reach("commit.pages_written")
        return m.PagesWritten(effect.request, outcome, version)

    async def _write_head(self, effect: m.WriteHead) -> m.Written:
        is_commit = effect.app is not None
        if is_commit:
            reach("commit.before_multi")
        try:
            outcome, version = await outcome_of(self.store.write_head(self.log_id, effect))
        except LedgerNotFoundError:
            outcome, version = MetadataOutcome.GONE, None
        if is_commit:
            reach("commit.after_multi")
        elif effect.unlisted:
            reach("sweep.unlisted")
        return m.Written(effect.request, outcome, version)

    async def _write_producer(self, effect: m.WriteProducer) -> m.Written:
        outcome, version = await outcome_of(
            self.store.producers.write(
                self.log_id,
                effect.app,
                effect.producer,
                effect.version,
                effect.deregistered,
                effect.released,
            )
        )
        if effect.deregistered or effect.released:
            reach("sweep.deregistered")
        else:
            reach("run.taken_over")
        return m.Written(effect.request, outcome, version)

    async def _read_staged(self, effect: m.ReadStaged) -> m.StagedRead:
        outcome, found = await outcome_of(self._staged(effect.app))
        registered_ms, now_ms = found or ({}, 0)
        return m.StagedRead(effect.request, outcome, registered_ms, now_ms)

    async def _staged(self, app: str) -> tuple[dict[int, int], int]:
        now_ms = await self.clock.now_ms(self.log_id)
        return await self.store.producers.staged_ms(self.log_id, app), now_ms

    async def _read_registrations(self, effect: m.ReadRegistrations) -> m.RegistrationsRead:
        outcome, found = await outcome_of(self._registrations(set(effect.ledger_ids)))
        return m.RegistrationsRead(effect.request, outcome, tuple(found or ()))

    async def _registrations(
        self, wanted: set[int]
    ) -> list[tuple[str, Versioned[ProducerRecord], tuple[int, ...]]]:
        found = []
        for app in await self.store.producers.names(self.log_id):
            # If a registration ends between these two reads, the later write fails, because it
            # expects this version of the producer record.
            producer = await self.store.producers.read(self.log_id, app)
            ids = wanted.intersection(await self.store.producers.registered(self.log_id, app))
            if ids and producer is not None:
                found.append((app, producer, tuple(sorted(ids))))
        return found

    async def _touch_pages(self, effect: m.TouchPages) -> m.Written:
        outcome, version = await outcome_of(self.store.touch_pages(self.log_id, effect.token))
        outcome = MetadataOutcome.GONE if outcome is MetadataOutcome.CONFLICT else outcome
        reach("sweep.pages_touched")
        return m.Written(effect.request, outcome, version)

    async def _delete_pages(self, effect: m.DeletePages) -> m.Written:
        work = self.store.delete_pages(self.log_id, effect.token, effect.kept)
        outcome, _ = await outcome_of(work)
        return m.Written(effect.request, outcome)

    async def _drop_ledger(self, effect: m.DropLedger) -> m.Written:
        if effect.marked_ms is not None:
            marked = self.store.producers.marked_ms(self.log_id, effect.ledger_id)
            outcome, marked_ms = await outcome_of(marked)
            if outcome is MetadataOutcome.OK and marked_ms != effect.marked_ms:
                outcome = MetadataOutcome.CONFLICT
            if outcome is not MetadataOutcome.OK:
                return m.Written(effect.request, outcome)
        outcome, is_gone = await outcome_of(self.drop_ledger(effect.ledger_id))
        is_kept = outcome is MetadataOutcome.OK and not is_gone
        return m.Written(effect.request, MetadataOutcome.UNAVAILABLE if is_kept else outcome)

    async def drop_ledger(self, ledger_id: int, *, may_seal: bool = True) -> bool:
        """Seal and delete a ledger that no version can list any more, and then delete its mark.

        The seal stops a writer that still appends. Return whether the ledger was deleted. It is not
        deleted if it could not be sealed, or if it is open and `may_seal` is false. After a
        MetadataUnknownError, the ledger may have been deleted; a retry is safe.
        """
        try:
            metadata = await self.ledgers.ledger_metadata(ledger_id)
            if not metadata.is_closed and not may_seal:
                return False
            await self.ledgers.seal(ledger_id, password=metadata.password)
            reach("sweep.ledger_sealed")
            await self.ledgers.delete_ledger(ledger_id)
            reach("sweep.ledger_deleted")
        except LedgerNotFoundError:
            pass
        except (MetadataUnavailableError, MetadataUnknownError):
            raise
        except LedgerLogError:
            return False
        await self.store.producers.forget_mark(self.log_id, ledger_id)
        return True


def _key_of(page: PageRequest) -> tuple[str, int]:
    return page.ref.token, page.ref.number


async def outcome_of(work: Awaitable[T]) -> tuple[MetadataOutcome, T | None]:
    """Return the outcome and the result of a request to the store.

    Raise errors without an outcome.
    """
    try:
        return MetadataOutcome.OK, await work
    except LedgerLogError as error:
        for kind, outcome in _OUTCOMES:
            if isinstance(error, kind):
                return outcome, None
        raise


def _gone(outcome: MetadataOutcome, found: object) -> MetadataOutcome:
    is_gone = outcome is MetadataOutcome.OK and found is None
    return MetadataOutcome.GONE if is_gone else outcome
