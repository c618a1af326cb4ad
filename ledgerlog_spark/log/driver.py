"""Runs the log's machines against a log store: the host of `protocol/log/`.

One request at a time, one reply for each. Errors of the store become outcomes. Any other error ends
the machine, as a bug does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

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
from ledgerlog_spark.log.retries import Retries
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.waits import Deadline

if TYPE_CHECKING:
    from ledgerlog_spark.log.maintenance.sweep_memory import PassClock
    from ledgerlog_spark.log.ports import Ledgers
    from ledgerlog_spark.metadata.logs.store import LogStore
    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.model import LedgerMetadata, Versioned
    from ledgerlog_spark.protocol.log.machine import LogMachine
    from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
    from ledgerlog_spark.protocol.log.state.records import ProducerRecord

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
"""Limit of a change of a log that a caller waits for, with its turn in the queue."""

_RETRIED = {MetadataOutcome.CONFLICT, MetadataOutcome.UNAVAILABLE, MetadataOutcome.UNKNOWN}


class Driver:
    """Machines of one log.

    Attributes:
        log_id: Id of the log.
        random: Spreads retries.
    """

    def __init__(
        self,
        store: LogStore,
        log_id: str,
        *,
        ledgers: Ledgers | None = None,
        keeps_pages: bool = False,
        random: Random | None = None,
        clock: PassClock | LogStore | None = None,
    ) -> None:
        """A driver of machines of one log.

        Args:
            store: The store of logs.
            log_id: Id of the log.
            ledgers: Needed only by machines that delete ledgers.
            keeps_pages: Whether a page, which never changes, is read once for all machines: for a
                few machines that run one after the other on nearly the same head.
            random: Spreads retries; None for a generator of its own.
            clock: Clock of a pass of maintenance; None reads the store's clock each time.
        """
        self.log_id = log_id
        self._kept_pages: Loaded | None = {} if keeps_pages else None
        self._store = store
        self._clock = clock
        self._ledgers = ledgers
        self.random = random or Random()  # noqa: S311 (spreads retries)
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
        """The machine's result.

        Args:
            machine: The machine to run to its end.
            timeout_ms: Limit of the whole run. None leaves the machine its own bounds: each
                request has a deadline, and the number of attempts is bounded.

        Raises:
            LocalProtocolError: The client was closed.
            LogTimeoutError: The limit was reached; a commit may raise CommitUnknownError instead.
            LedgerLogError: The error of the machine.
        """
        if self._ledgers is not None:
            self._ledgers.check_open()
        seconds = None if timeout_ms is None else timeout_ms / 1e3
        deadline = Deadline(seconds, lambda: machine.give_up(timeout_ms or 0))
        async with self.retries() as retries, deadline:
            ended = await self._steps(machine, retries)
        if isinstance(ended, m.Failed):
            raise ended.error
        return ended.result

    async def _steps(self, machine: LogMachine[R], retries: Retries) -> m.Finished[R] | m.Failed:
        """The result of the machine, after one request at a time."""
        (effect,) = machine.start()
        while not isinstance(effect, m.Finished | m.Failed):
            reply = await self._carry_out[type(effect)](effect)
            (following,) = machine.handle(reply)
            is_over = isinstance(following, m.Finished | m.Failed)
            if reply.outcome in _RETRIED and not is_over:
                await retries.after(reply.outcome, is_of_head=isinstance(effect, m.WriteHead))
            effect = following
        return effect

    async def perform(self, ask: m.LogRequest[Any]) -> m.LogReply:
        """The reply to one request, success or failure, without a pause."""
        return await self._carry_out[type(ask)](ask)

    @contextlib.asynccontextmanager
    async def retries(self) -> AsyncIterator[Retries]:
        """The retries of one change of the log; leaves the queue at the end."""
        retries = Retries(self._store, self.log_id, self.random)
        try:
            yield retries
        finally:
            await retries.end()

    async def make_ledger(
        self, ledger_id: int, metadata: LedgerMetadata
    ) -> Versioned[LedgerMetadata]:
        """Implements `LogStore.make_ledger`."""
        return await self._store.make_ledger(self.log_id, ledger_id, metadata)

    def watch_head(self, on_change: OnChange) -> CancelWatch:
        """Implements `LogStore.watch_head`."""
        return self._store.watch_head(self.log_id, on_change)

    async def _sync(self, ask: m.Sync) -> m.Synced:
        outcome, _ = await _attempt(self._store.sync())
        return m.Synced(ask.request, outcome)

    async def _read_head(self, ask: m.ReadHead) -> m.HeadRead:
        outcome, head = await _attempt(self._store.read_head(self.log_id))
        outcome, now_ms = await self._time(ask.time, _gone(outcome, head))
        return m.HeadRead(ask.request, outcome, head, now_ms)

    async def _read_producer(self, ask: m.ReadProducer) -> m.ProducerRead:
        outcome, found = await _attempt(self._store.read_producer(self.log_id, ask.app))
        outcome, now_ms = await self._time(ask.time, _gone(outcome, found))
        return m.ProducerRead(ask.request, outcome, found, now_ms)

    async def _time(
        self, needed: m.TimeNeeded, outcome: MetadataOutcome
    ) -> tuple[MetadataOutcome, int]:
        """The store's clock for a reply of that outcome, and the outcome with it."""
        if needed is m.TimeNeeded.NONE or outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            return outcome, 0
        if needed is m.TimeNeeded.RECENT:
            read, now_ms = await _attempt(self._store.recent_ms())
        elif outcome is MetadataOutcome.OK:
            clock = self._clock or self._store
            read, now_ms = await _attempt(clock.now_ms(self.log_id))
        else:
            return outcome, 0
        if read is not MetadataOutcome.OK or now_ms is None:
            # The write that reads the time changes nothing, whatever its outcome.
            return MetadataOutcome.UNAVAILABLE, 0
        return outcome, now_ms

    async def _read_registered(self, ask: m.ReadRegistered) -> m.RegisteredRead:
        outcome, ids = await _attempt(self._store.registered(self.log_id, ask.app))
        return m.RegisteredRead(ask.request, outcome, tuple(ids or ()))

    async def _read_pages(self, ask: m.ReadPages) -> m.PagesRead:
        pages: Loaded = {} if self._kept_pages is None else self._kept_pages
        missing = [page for page in ask.pages if _key_of(page) not in pages]
        if missing:
            outcome, read = await _attempt(self._store.read_pages(self.log_id, missing))
            if read is None:
                return m.PagesRead(ask.request, _gone(outcome, read), ())
            pages.update(zip(map(_key_of, missing), read, strict=True))
        found = tuple(pages[_key_of(page)] for page in ask.pages)
        return m.PagesRead(ask.request, MetadataOutcome.OK, found)

    async def _read_password(self, ask: m.ReadPassword) -> m.PasswordRead:
        assert self._ledgers is not None, "this driver reads no records of ledgers"
        try:
            outcome, metadata = await _attempt(self._ledgers.ledger_metadata(ask.ledger_id))
        except LedgerNotFoundError:
            outcome, metadata = MetadataOutcome.GONE, None
        if metadata is None:
            return m.PasswordRead(ask.request, outcome)
        if not metadata.has_password:
            return m.PasswordRead(ask.request, MetadataOutcome.GONE)
        return m.PasswordRead(ask.request, outcome, metadata.password)

    async def _write_pages(self, ask: m.WritePages) -> m.PagesWritten:
        work = self._store.write_pages(self.log_id, ask.token, ask.pages)
        outcome, version = await _attempt(work)
        reach("commit.pages_written")
        return m.PagesWritten(ask.request, outcome, version)

    async def _write_head(self, ask: m.WriteHead) -> m.Written:
        is_commit = ask.app is not None
        if is_commit:
            reach("commit.before_multi")
        try:
            outcome, version = await _attempt(self._store.write_head(self.log_id, ask))
        except LedgerNotFoundError:
            outcome, version = MetadataOutcome.GONE, None
        if is_commit:
            reach("commit.after_multi")
        elif ask.unlisted:
            reach("sweep.unlisted")
        return m.Written(ask.request, outcome, version)

    async def _write_producer(self, ask: m.WriteProducer) -> m.Written:
        outcome, version = await _attempt(
            self._store.write_producer(
                self.log_id, ask.app, ask.producer, ask.version, ask.deregistered, ask.released
            )
        )
        if ask.deregistered or ask.released:
            reach("sweep.deregistered")
        else:
            reach("run.taken_over")
        return m.Written(ask.request, outcome, version)

    async def _read_staged(self, ask: m.ReadStaged) -> m.StagedRead:
        outcome, found = await _attempt(self._staged(ask.app))
        ledgers, now_ms = found or ((), 0)
        return m.StagedRead(ask.request, outcome, tuple(ledgers), now_ms)

    async def _staged(self, app: str) -> tuple[tuple[m.StagedRegistration, ...], int]:
        clock = self._clock or self._store
        now_ms = await clock.now_ms(self.log_id)
        return tuple(await self._store.staged(self.log_id, app)), now_ms

    async def _read_registrations(self, ask: m.ReadRegistrations) -> m.RegistrationsRead:
        outcome, found = await _attempt(self._registrations(set(ask.ledger_ids)))
        return m.RegistrationsRead(ask.request, outcome, tuple(found or ()))

    async def _registrations(
        self, wanted: set[int]
    ) -> list[tuple[str, Versioned[ProducerRecord], tuple[int, ...]]]:
        found = []
        for app in await self._store.producers(self.log_id):
            # A registration that ends in between makes the write at this record fail.
            producer = await self._store.read_producer(self.log_id, app)
            ids = [i for i in await self._store.registered(self.log_id, app) if i in wanted]
            if ids and producer is not None:
                found.append((app, producer, tuple(ids)))
        return found

    async def _touch_pages(self, ask: m.TouchPages) -> m.Written:
        outcome, version = await _attempt(self._store.touch_pages(self.log_id, ask.token))
        outcome = MetadataOutcome.GONE if outcome is MetadataOutcome.CONFLICT else outcome
        reach("sweep.pages_touched")
        return m.Written(ask.request, outcome, version)

    async def _delete_pages(self, ask: m.DeletePages) -> m.Written:
        work = self._store.delete_pages(self.log_id, ask.token, ask.kept)
        outcome, _ = await _attempt(work)
        return m.Written(ask.request, outcome)

    async def _drop_ledger(self, ask: m.DropLedger) -> m.Written:
        if ask.marked_ms is not None:
            marked = self._store.marked_ms(self.log_id, ask.ledger_id)
            outcome, marked_ms = await _attempt(marked)
            if outcome is MetadataOutcome.OK and marked_ms != ask.marked_ms:
                outcome = MetadataOutcome.CONFLICT
            if outcome is not MetadataOutcome.OK:
                return m.Written(ask.request, outcome)
        outcome, is_gone = await _attempt(self.drop_ledger(ask.ledger_id))
        is_kept = outcome is MetadataOutcome.OK and not is_gone
        return m.Written(ask.request, MetadataOutcome.UNAVAILABLE if is_kept else outcome)

    async def drop_ledger(self, ledger_id: int, *, may_seal: bool = True) -> bool:
        """Seal and delete a ledger that no version can list any more, then delete its mark.

        It is sealed first, so that a writer that still exists stops. False when it is kept, because
        it could not be sealed, or is open and `may_seal` is false.

        Raises:
            MetadataUnavailableError: The store cannot be reached; the ledger is kept.
            MetadataUnknownError: It may be deleted; a retry is safe.
        """
        assert self._ledgers is not None, "this driver deletes no ledgers"
        try:
            metadata = await self._ledgers.ledger_metadata(ledger_id)
            if not metadata.is_closed and not may_seal:
                return False
            await self._ledgers.seal(ledger_id, password=metadata.password)
            reach("sweep.ledger_sealed")
            await self._ledgers.delete_ledger(ledger_id)
            reach("sweep.ledger_deleted")
        except LedgerNotFoundError:
            pass
        except (MetadataUnavailableError, MetadataUnknownError):
            raise
        except LedgerLogError:
            return False
        await self._store.forget_mark(self.log_id, ledger_id)
        return True


def _key_of(page: PageRequest) -> tuple[str, int]:
    return page.ref.token, page.ref.number


async def _attempt(work: Awaitable[T]) -> tuple[MetadataOutcome, T | None]:
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
