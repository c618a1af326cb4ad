"""The handle of a ledger that this client created and writes.

Each append has one future, but no task. Appends are gathered into runs, and the `LedgerWriter` gets
each run as one event. When a run is confirmed, the handle completes the futures of its appends in
order.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ledgerlog_spark.client.append_queue import (
    PENDING_ENDS,
    AppendQueue,
    Gathered,
)
from ledgerlog_spark.client.arguments import check_type
from ledgerlog_spark.client.errors_from_codes import error_for_unsent, error_from_failure
from ledgerlog_spark.client.handles.lac_announcer import LacAnnouncer, announces
from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.host.effects import MachineHost
from ledgerlog_spark.client.payloads import checked_payload, checked_payloads
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import (
    LedgerClosedError,
    LedgerLogError,
    MetadataUnavailableError,
)
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.protocol.ledger.messages import (
    AddRequested,
    CloseRequested,
    EnsembleChanged,
    HolesLeft,
    Indication,
    LedgerClosed,
    LedgerFailed,
    MemberLost,
    NoReplacement,
    RunConfirmed,
)
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from ledgerlog_spark.waits import Deadline, forever

_logger = logging.getLogger(__name__)


class WriteHandle:
    """Appends to one ledger. An append is acknowledged when its entry is on disk at Qa bookies.

    All methods must be called on the thread of the client's event loop. Entry ids have no gaps, and
    are in the order of the calls. If the future of an append is cancelled, the append itself
    continues and keeps its entry id.

    Attributes:
        id: The id of the ledger.
        queue: The appends that are not acknowledged. The blocking API uses the queue directly.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        created: Versioned[LedgerMetadata],
        services: Services,
        changes_ensemble: bool = True,
        absent: Collection[str] = (),
        on_closed: Callable[[LedgerMetadata], object] | None = None,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> None:
        """Create the handle of a new ledger, which has no entries.

        If `changes_ensemble` is false, the first failure of a bookie ends the handle. `absent` are
        the bookies of the ensemble that are not registered. The writer sends no entries to these
        bookies yet. `on_failed` gets the error after which appends are no longer accepted. Pending
        appends fail before `on_failed` is called.
        """
        metadata = created.value
        settings = services.settings
        self._bookies = services.bookies
        self._holes = services.holes
        self.id = ledger_id
        self._on_closed = on_closed
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        limits = settings.writer
        if not changes_ensemble:
            limits = replace(limits, ensemble_changes_max=0)
        self._writer = LedgerWriter(
            ledger_id=ledger_id, created=created, settings=limits, absent=absent
        )
        ledger = LedgerBytes(ledger_id, metadata.digest_type, metadata.password)
        self._announcer = (
            LacAnnouncer(self._writer, services, ledger) if announces(metadata) else None
        )
        self.queue = AppendQueue(
            self._writer,
            self._send,
            settings,
            few_in_flight=settings.runs_in_flight_min,
        )
        self._host = MachineHost(
            self._writer,
            services=services,
            ledger=ledger,
            on_indication=self._on_indication,
            on_crash=self._on_crash,
            on_settled=self.queue.send_now,
        )
        self._closing: asyncio.Task[LedgerMetadata] | None = None
        self._closed: asyncio.Future[LedgerMetadata] | None = None
        self._timeout_ms = settings.close_timeout_ms

    @property
    def last_add_confirmed(self) -> int:
        """Id of the last acknowledged entry; NO_ENTRY (-1) if there is none. It never decreases."""
        return self._writer.last_add_confirmed

    @property
    def length(self) -> int:
        """Number of payload bytes of the entries up to and including `last_add_confirmed`."""
        return self._writer.length

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that the writer read or wrote."""
        return self._writer.metadata.value

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The bookies of the newest fragment; empty if appends are no longer accepted."""
        return self.metadata.last_fragment.ensemble if self.is_writable else ()

    @property
    def absent_bookies(self) -> tuple[str, ...]:
        """Bookies that get no entries, because they do not answer and none can replace them.

        New entries have one copy less for each absent bookie of their write set.
        """
        return self._writer.absent_bookies

    @property
    def is_writable(self) -> bool:
        """Whether appends are still accepted.

        They are if the handle has neither failed nor been closed.
        """
        return self.queue.refusal is None

    @property
    def entries_pending(self) -> int:
        """Number of appended entries that are not acknowledged yet."""
        return self.queue.entries + sum(len(run.payloads) for run in self.queue.in_flight)

    async def append(self, payload: bytes | bytearray | memoryview) -> int:
        """Append an entry, wait until it is on disk at Qa bookies, and return its id.

        Args:
            payload: The bytes of the entry, a little less than 5 MiB at most. The bytes under a
                read-only view must not change until this call returns.

        Raises:
            LocalProtocolError: The payload is not bytes, or is too large; definite.
            LedgerClosedError: The handle was closed before this call; definite.
            LedgerFencedError: Another client recovers the ledger. The error is definite only if
                this handle had received the fence before the append.
            AddTimeoutError: The ack quorum was not reached in time; not definite.
            NotEnoughBookiesError: Failed bookies could not be replaced; not definite.
            QuorumError: Bookies stay overloaded, or failed bookies must not be replaced; not
                definite.
            MetadataUnavailableError: A failed bookie could not be replaced; not definite.
        """
        future = self.queue.append(checked_payload(payload), at_once=True)
        return await forever(future, PENDING_ENDS)

    def append_async(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append an entry, and return a future of its id. The errors are those of `append`.

        This method never blocks, so a caller with many appends must await `drain` regularly. If the
        unsent appends reach 16 times the settings' backlog, the future fails with a definite
        LocalProtocolError.
        """
        return self.queue.append(checked_payload(payload))

    async def append_batch(self, payloads: Sequence[bytes | bytearray | memoryview]) -> range:
        """Append several entries, wait until Qa bookies have them on disk, and return their ids.

        The errors are those of `append`. After a failure, the recovered ledger may contain the
        first entries of the batch without the other entries. An empty batch returns an empty range
        and sends nothing.
        """
        future = self.queue.append_batch(checked_payloads(payloads), at_once=True)
        return await forever(future, PENDING_ENDS)

    def append_batch_async(
        self, payloads: Sequence[bytes | bytearray | memoryview]
    ) -> asyncio.Future[range]:
        """Append several entries like `append_async`, and return a future of their range of ids."""
        return self.queue.append_batch(checked_payloads(payloads))

    async def drain(self) -> None:
        """Wait until the number of unsent appends is less than the backlog of the settings."""
        await self.queue.drain()

    async def flush(self) -> None:
        """Wait until all appends are acknowledged or have failed, including later appends."""
        await self.queue.flush()

    async def close(self) -> LedgerMetadata:
        """Wait until all earlier appends have ended, close the ledger, and return its metadata.

        Later appends are refused. A second call returns the same result, but tries again if the
        first call failed with a retriable error. If the handle failed, its ledger is closed at the
        last confirmed entry. This is impossible if another client has fenced or closed the ledger.

        Pending appends may take up to twice `add_quorum_timeout_ms`. After that, the metadata store
        must answer within `close_timeout_ms` (30 s by default). Otherwise the call raises
        MetadataUnavailableError, and the close continues in the background. The close also
        continues if the waiting call is cancelled or interrupted, until the client is closed.

        Raises:
            LedgerFencedError: Another client is recovering the ledger, and will close the ledger.
            LedgerClosedError: Another client closed the ledger at another entry, or this handle's
                client was closed before the ledger. In the second case, the error is definite only
                if no close request was sent.
            LedgerNotFoundError: The ledger was deleted.
            MetadataUnavailableError: The ledger is not closed, or its state is unknown. The caller
                may close it again, or seal it later.
        """
        if self._closing is None or _may_close_again(self._closing):
            if self.queue.refusal is None:
                self.queue.refusal = self._closed_error
                self._stop_announcing()  # the close notifies readers of the end
            self._closing = self._loop.create_task(self._close())
            self._closing.add_done_callback(_look_at_outcome)
        return await forever(asyncio.shield(self._closing), "`_close` has deadlines")

    def abandon(self) -> None:
        """Stop the writer without closing the ledger. Pending appends fail with an unknown outcome.

        The client calls this method when the client is closed.
        """
        if self.queue.refusal is None:
            self.queue.refusal = self._closed_error
        self._stop_announcing()
        self._host.stop()
        self.queue.fail(
            LedgerClosedError(
                f"ledger {self.id}: its client was closed before the append was acknowledged; "
                "seal the ledger to learn which entries it has",
                definite=False,
                ledger_id=self.id,
            )
        )
        if self._closed is not None and not self._closed.done():
            self._closed.set_exception(self._stopped_error())

    def member_lost(self, bookie_id: str) -> None:
        """Notify the writer that a bookie has not been registered for some time."""
        # PROTOCOL.md#B22
        check_type("bookie_id", bookie_id, str)
        if self.is_writable:
            self._host.post(MemberLost(bookie_id))

    def _send(self, run: Gathered) -> None:
        if self._announcer is not None:
            self._announcer.on_sent()
        self._host.post(AddRequested(run.payloads))

    def send_now(self) -> None:
        """Send the queued appends, as far as the window and the linger allow it."""
        self.queue.send_now()

    # --- indications of the machine ---

    def _on_indication(self, indication: Indication) -> None:
        if type(indication) is RunConfirmed:
            queue = self.queue
            run = queue.in_flight.popleft()
            if self._announcer is not None:
                self._announcer.on_confirmed(is_idle=not queue.in_flight)
            queue.complete(run.results(indication.first_entry_id))
        elif isinstance(indication, LedgerFailed):
            self._on_ledger_failed(indication)
        elif isinstance(indication, LedgerClosed):
            self._on_ledger_closed(indication.versioned.value)
        elif isinstance(indication, NoReplacement):
            self._warn_of_missing(indication)
        elif isinstance(indication, HolesLeft):
            self._holes.add(self.id, indication.metadata, indication.holes)
        else:
            assert isinstance(indication, EnsembleChanged), indication
            self._on_ensemble_changed(indication)

    def _on_ledger_closed(self, metadata: LedgerMetadata) -> None:
        assert self._closed is not None
        self._stop_announcing()
        if self._on_closed is not None:
            self._on_closed(metadata)
        if not self._closed.done():
            self._closed.set_result(metadata)

    def _on_ensemble_changed(self, changed: EnsembleChanged) -> None:
        if changed.returned:
            _logger.info(
                "ledger %d: %s is back, and gets all entries from %d on",
                self.id,
                " and ".join(changed.returned),
                changed.first_entry_id,
            )
        self._bookies.failed(changed.replaced)
        self._bookies.report(changed.ensemble, self._writer.metadata.value.quorum)
        if self._announcer is not None:
            self._announcer.on_ensemble_changed()

    def _warn_of_missing(self, missing: NoReplacement) -> None:
        self._bookies.failed(bookie_id for bookie_id, _ in missing.answers)
        size, copies = missing.wanted, self.metadata.quorum.ack_quorum
        names = tuple(bookie_id for bookie_id, _ in missing.answers)
        others = self._bookies.absence_lines.suffix(names)
        if others is None:
            return
        _logger.warning(
            "ledger %d continues without %s, because no other bookie can replace it. Entries are "
            "acknowledged with %d copies, and appends stop if fewer bookies answer: start the "
            "bookie again, or another one (with an ensemble of %d, a replacement needs %d bookies)"
            "%s",
            self.id,
            " and ".join(f"{bookie_id} ({code.value})" for bookie_id, code in missing.answers),
            copies,
            size,
            size + 1,
            others,
        )

    def _on_ledger_failed(self, failed: LedgerFailed) -> None:
        error = error_from_failure(self.id, failed)
        if self._closed is not None:
            if not self._closed.done():
                self._closed.set_exception(error)
            return
        error.retriable = False  # the handle accepts no more appends
        self.queue.refusal = lambda: error_for_unsent(self.id, failed)
        self._fail(error)

    def _on_crash(self, crash: LedgerLogError) -> None:
        self.queue.refusal = lambda: _unsent(crash)
        self._fail(crash)
        if self._closed is not None and not self._closed.done():
            self._closed.set_exception(crash)

    def _fail(self, error: LedgerLogError) -> None:
        """End the pending appends with an error.

        Readers are still notified of acknowledged entries.
        """
        self.queue.fail(error)
        if self._announcer is not None:
            self._announcer.on_failed()
        if self._on_failed is not None:
            self._on_failed(error)

    def _stop_announcing(self) -> None:
        if self._announcer is not None:
            self._announcer.stop()

    def _closed_error(self) -> LedgerLogError:
        return LedgerClosedError(
            f"ledger {self.id} was closed by this handle: create a new ledger to go on writing",
            ledger_id=self.id,
        )

    def _stopped_error(self) -> LedgerLogError:
        """Return the error that `close` raises if the client was closed before the ledger."""
        was_requested = self._closed is not None
        happened = "the close was answered" if was_requested else "the ledger was closed"
        return LedgerClosedError(
            f"ledger {self.id}: the client was closed before {happened}; seal the ledger to close "
            "it",
            definite=not was_requested,
            ledger_id=self.id,
        )

    async def _close(self) -> LedgerMetadata:
        await self.flush()
        if self._host.crash is not None:
            raise self._host.crash
        if self._host.is_stopped:
            raise self._stopped_error()
        if self._closed is None or (self._closed.done() and self._closed.exception()):
            self._closed = self._loop.create_future()
            self._closed.add_done_callback(_look_at_outcome)
            self._host.post(CloseRequested())
        async with Deadline(self._timeout_ms / 1e3, self._unclosed):
            return await asyncio.shield(self._closed)

    def _unclosed(self) -> MetadataUnavailableError:
        return MetadataUnavailableError(
            f"ledger {self.id} was not closed within {self._timeout_ms / 1e3:g} s, but may still "
            "be closed: check that ZooKeeper runs, then close it again or seal it later",
            definite=False,
            ledger_id=self.id,
        )

    def __repr__(self) -> str:
        return f"WriteHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"


def _look_at_outcome(closing: asyncio.Future[LedgerMetadata]) -> None:
    """Mark the error of a task or future as retrieved.

    Otherwise, asyncio reports the error if no caller waits for it.
    """
    if not closing.cancelled():
        closing.exception()


def _may_close_again(closing: asyncio.Task[LedgerMetadata]) -> bool:
    if not closing.done() or closing.cancelled():
        return False
    error = closing.exception()
    return isinstance(error, LedgerLogError) and error.retriable


def _unsent(crash: LedgerLogError) -> LedgerLogError:
    """Return the error of appends that were never sent.

    The error is definite, because these appends are not stored.
    """
    unsent = copy.copy(crash)
    unsent.definite = True
    unsent.__cause__ = crash
    return unsent
