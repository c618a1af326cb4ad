"""Performs the effects of machines as calls, and passes the answers to the machines as events.

A `MachineHost` runs one machine on the event loop, and keeps the contract that
`ledgerlog_spark.protocol` lists for hosts. The host passes the first reply to each request to the
machine, and drops later replies. Events go through a queue (`event_queue.py`). The bytes of a run
are encoded once. The digest of an entry is verified before the machine gets the entry. The order of
the candidates for an ensemble is random.

A request to a bookie needs no asyncio task, because the transport calls a function with the answer.
Each request to the metadata store has an asyncio task. This costs little, because a ledger needs
only a few of these requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from ledgerlog_spark.client.errors_from_codes import outcome_of
from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.host.event_queue import EventQueue, Machine
from ledgerlog_spark.client.identities import read_identities, stored_identities
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from ledgerlog_spark.protocol.ledger.messages import (
    AddReplied,
    AddRequested,
    BatchReplied,
    BookiesListed,
    CasMetadata,
    Event,
    Indication,
    LacReplied,
    ListBookies,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    ReadReplied,
    SendAdd,
    SendRead,
    SendReadBatch,
    SendReadLac,
    SendReadSlices,
    Start,
    StartTimer,
    StoredEntry,
    TimerFired,
)
from ledgerlog_spark.transport.port import ReadBatch, ReadEntry
from ledgerlog_spark.waits import forever

T = TypeVar("T")


Reply = (
    AddReplied
    | ReadReplied
    | BatchReplied
    | LacReplied
    | MetadataLoaded
    | MetadataWritten
    | BookiesListed
    | IdentitiesRead
    | TimerFired
)
"""The events that answer a request of the machine."""


def _brief_reply(event: ReadReplied | BatchReplied) -> str:
    return f"{type(event).__name__}({event.request}, {event.code})"


class MachineHost(EventQueue[Event]):
    """Runs one machine. All methods must be called on the event loop's thread."""

    _briefs: ClassVar[Mapping[type, Callable[[Any], object]]] = {
        AddRequested: lambda event: f"AddRequested({len(event.payloads)} entries)",
        ReadReplied: _brief_reply,
        BatchReplied: _brief_reply,
    }

    def __init__(
        self,
        machine: Machine,
        *,
        services: Services,
        ledger: LedgerBytes,
        on_indication: Callable[[Indication], None],
        on_crash: Callable[[LedgerLogError], None],
        on_settled: Callable[[], None] | None = None,
    ) -> None:
        """Create a host. Only this host may call the machine's `handle`."""
        super().__init__(
            machine,
            subject=f"{type(machine).__name__} of ledger {ledger.ledger_id}",
            about={"ledger_id": ledger.ledger_id},
            random=services.random,
            on_crash=on_crash,
            on_settled=on_settled,
        )
        self._services = services
        self._ledger = ledger
        self._on_indication = on_indication
        self._open: set[int] = set()
        self.replies = 0
        """Number of answered requests. Timers are not counted."""
        self._performers: dict[type, Callable[[Any], None]] = {
            SendAdd: self._send_add,
            SendRead: self._send_read,
            SendReadBatch: self._send_read_batch,
            SendReadSlices: self._send_read_slices,
            SendReadLac: self._send_read_lac,
            LoadMetadata: lambda effect: self._spawn(self._load(effect)),
            CasMetadata: lambda effect: self._spawn(self._cas(effect)),
            ListBookies: lambda effect: self._spawn(self._list(effect)),
            ReadIdentities: lambda effect: self._spawn(self._read_identities(effect)),
            StartTimer: self._start_timer,
        }

    def stop(self) -> None:
        """Stop the machine, so that it gets no more events, timers or replies.

        Requests to bookies continue. Requests to the metadata store are cancelled.
        """
        super().stop()
        self._open.clear()
        for task in self._tasks:
            task.cancel()

    def _perform(self, effect: Any) -> None:
        perform = self._performers.get(type(effect))
        if perform is None:
            self._on_indication(effect)
        else:
            self._open.add(effect.request)
            perform(effect)

    def _reply(self, event: Reply) -> None:
        """Pass the first reply to a request to the machine, and drop later replies."""
        request = event.request
        if request in self._open:
            self._open.discard(request)
            if type(event) is not TimerFired:
                self.replies += 1
            self.post(event)

    # --- bookies: the transport answers each request once, at its deadline at the latest ---

    def _send_add(self, effect: SendAdd) -> None:
        encoded = effect.run.attachment
        if encoded is None or effect.entry_ids is not None:
            encoded = self._ledger.add_run(effect)
        self._services.transport.add(
            effect.bookie_id,
            encoded,
            self._services.settings.add_timeout_ms,
            partial(self._on_add, effect.request),
        )

    def _on_add(self, request: int, code: Code) -> None:
        self._reply(AddReplied(request, code))

    def _send_read(self, effect: SendRead) -> None:
        self._services.transport.read(
            effect.bookie_id,
            ReadEntry(
                ledger_id=self._ledger.ledger_id,
                entry_id=effect.entry_id,
                fence_key=self._ledger.master_key if effect.fence else None,
                is_recovery=effect.is_recovery,
            ),
            self._services.settings.read_timeout_ms,
            partial(self._on_read, effect.request, effect.entry_id),
        )

    def _on_read(self, request: int, entry_id: int, code: Code, stored: bytes | None) -> None:
        entry = None
        if code is Code.OK:
            entry = self._ledger.verified(stored, entry_id)
            code = Code.OK if entry is not None else Code.DIGEST_MISMATCH
        self._reply(ReadReplied(request, code, entry))

    def _send_read_batch(self, effect: SendReadBatch) -> None:
        self._services.transport.read_batch(
            effect.bookie_id,
            ReadBatch(
                ledger_id=self._ledger.ledger_id,
                first_entry_id=effect.first_entry_id,
                count_max=effect.count_max,
                size_bytes_max=effect.size_bytes_max,
                is_recovery=effect.is_recovery,
            ),
            self._services.settings.read_timeout_ms,
            partial(self._on_batch, effect.request, effect.first_entry_id),
        )

    def _on_batch(
        self, request: int, first_entry_id: int, code: Code, stored: Sequence[bytes]
    ) -> None:
        entries: Sequence[StoredEntry] = ()
        if code is Code.OK and request in self._open and stored:
            verified = self._ledger.verified_batch(stored, first_entry_id)
            if verified is None:
                code = Code.DIGEST_MISMATCH
            else:
                entries = verified
        self._reply(BatchReplied(request, code, entries))

    def _send_read_slices(self, effect: SendReadSlices) -> None:
        self._services.transport.read_slices(
            effect.bookie_id,
            self._ledger.slice_read(effect),
            self._services.settings.read_timeout_ms,
            partial(self._on_slices, effect),
        )

    def _on_slices(self, effect: SendReadSlices, code: Code, received: Sequence[bytes]) -> None:
        entries: Sequence[StoredEntry] = ()
        if code is Code.OK and effect.request in self._open and received:
            verified = self._ledger.verified_slices(effect, received)
            if verified is None:
                code = Code.DIGEST_MISMATCH
            else:
                entries = verified
        self._reply(BatchReplied(effect.request, code, entries))

    def _send_read_lac(self, effect: SendReadLac) -> None:
        if self._ledger.has_explicit_lac:
            # The answer is the larger of the announced LAC and the LAC in the entries' headers.
            self._services.transport.read_lac(
                effect.bookie_id,
                self._ledger.ledger_id,
                self._services.settings.read_timeout_ms,
                partial(self._on_known_lac, effect),
            )
        else:
            self._send_read_last(effect)

    def _on_known_lac(self, effect: SendReadLac, code: Code, last_add_confirmed: int) -> None:
        if code is Code.OK or code.is_absent:
            self._reply(LacReplied(effect.request, code, last_add_confirmed))
        elif effect.request in self._open:
            self._send_read_last(effect)  # perhaps only the control service does not answer

    def _send_read_last(self, effect: SendReadLac) -> None:
        self._services.transport.read(
            effect.bookie_id,
            ReadEntry(ledger_id=self._ledger.ledger_id, entry_id=NO_ENTRY),
            self._services.settings.read_timeout_ms,
            partial(self._on_lac, effect.request),
        )

    def _on_lac(self, request: int, code: Code, stored: bytes | None) -> None:
        confirmed = NO_ENTRY
        if code is Code.OK:
            entry = self._ledger.verified(stored, NO_ENTRY)
            if entry is None:
                code = Code.DIGEST_MISMATCH
            else:
                confirmed = entry.last_add_confirmed
        self._reply(LacReplied(request, code, confirmed))

    # --- the metadata store ---

    async def _load(self, effect: LoadMetadata) -> None:
        store = self._services.ledgers
        versioned = None
        try:
            async with asyncio.timeout(self._services.settings.metadata_timeout_ms / 1e3):
                if effect.sync_first:
                    await store.sync()
                versioned = await store.load(self._ledger.ledger_id)
            outcome = MetadataOutcome.OK
        except TimeoutError:
            outcome = MetadataOutcome.UNAVAILABLE
        except LedgerLogError as error:
            outcome = _outcome_or_raise(error)
            if outcome in (MetadataOutcome.UNKNOWN, MetadataOutcome.CONFLICT):
                # A load writes nothing, so its outcome cannot be unknown.
                outcome = MetadataOutcome.UNAVAILABLE
        self._reply(MetadataLoaded(effect.request, outcome, versioned))

    async def _cas(self, effect: CasMetadata) -> None:
        versioned = None
        try:
            async with asyncio.timeout(self._services.settings.metadata_timeout_ms / 1e3):
                versioned = await self._written(effect)
            outcome = MetadataOutcome.OK
        except TimeoutError:
            outcome = MetadataOutcome.UNKNOWN
        except LedgerLogError as error:
            outcome = _outcome_or_raise(error)
        self._reply(MetadataWritten(effect.request, outcome, versioned))

    async def _written(self, effect: CasMetadata) -> Versioned[LedgerMetadata]:
        store, ledger_id = self._services.ledgers, self._ledger.ledger_id
        if not effect.identities:
            return await store.write(ledger_id, effect.metadata, effect.version)
        identities = stored_identities(effect.identities)
        return await store.replace(ledger_id, effect.metadata, effect.version, identities)

    async def _read_identities(self, effect: ReadIdentities) -> None:
        identities = None
        store = self._services.identities
        try:
            async with asyncio.timeout(self._services.settings.metadata_timeout_ms / 1e3):
                identities = await read_identities(store, effect.bookie_ids)
        except LedgerLogError as error:
            _outcome_or_raise(error)
        except TimeoutError:
            pass
        self._reply(IdentitiesRead(effect.request, identities))

    async def _list(self, effect: ListBookies) -> None:
        try:
            found = await self._services.candidates(is_fresh=effect.is_fresh)
            listed = BookiesListed(effect.request, found.names, found.bookies, found.policy)
        except LedgerLogError as error:
            _outcome_or_raise(error)
            listed = BookiesListed(effect.request, ())
        self._reply(listed)


class StallWatch:
    """Ends the wait for a machine that gets no more replies. Runs in the event loop.

    Each request of a machine is answered by its deadline at the latest. Therefore a waiting machine
    gets an answer within the longest deadline. A machine that gets only events of its own timers is
    stuck because of a bug of ledgerlog. So that the caller does not wait forever, `on_stall` is
    called after each `stall_ms` without a new reply. No request takes as long as `stall_ms`.
    """

    def __init__(
        self, replies: Callable[[], int], on_stall: Callable[[], None], stall_ms: int
    ) -> None:
        self._replies = replies
        self._on_stall = on_stall
        self._seconds = stall_ms / 1e3
        self._seen = 0
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin to count replies and to call `on_stall`."""
        self._seen = self._replies()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def stop(self) -> None:
        """Stop watching: `on_stall` is not called any more. A second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        is_stalled = self._replies() == self._seen
        self.start()
        if is_stalled:
            self._on_stall()


async def result_of(
    machine: Machine,
    services: Services,
    ledger: LedgerBytes,
    *,
    take: Callable[[Indication], T | LedgerLogError | None],
    stalled: Callable[[str], LedgerLogError],
) -> T:
    """Start a machine, wait for its end, and return its result or raise its error.

    For the last indication of the machine, `take` returns the result or the error. For other
    indications, `take` returns None. If the machine gets no more replies, `stalled` creates the
    error from a description of the problem.
    """
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def settle(result: T | LedgerLogError | None) -> None:
        if result is None or done.done():
            return
        if isinstance(result, LedgerLogError):
            done.set_exception(result)
        else:
            done.set_result(result)

    host = MachineHost(
        machine,
        services=services,
        ledger=ledger,
        on_indication=lambda indication: settle(take(indication)),
        on_crash=settle,
    )
    stall_ms = services.settings.stall_ms
    why = f"no request was answered for {stall_ms / 1e3:g} s"
    watch = StallWatch(lambda: host.replies, lambda: settle(stalled(why)), stall_ms)
    watch.start()
    try:
        host.post(Start())
        return await forever(done, "the machine ends, or the watch ends it")
    finally:
        watch.stop()
        host.stop()


def _outcome_or_raise(error: LedgerLogError) -> MetadataOutcome:
    outcome = outcome_of(error)
    if outcome is None:
        raise error
    return outcome
