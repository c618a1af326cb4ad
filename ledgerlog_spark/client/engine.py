"""The one place where effects of machines become calls, and answers become events.

A `MachineHost` drives one machine on the event loop. It keeps the contract that
`ledgerlog_spark.protocol` lists for hosts: one reply for each request, later ones dropped; events
through a queue (`event_queue.py`); bytes encoded once for each run; digests verified before the
machine sees an entry; candidates shuffled here.

There is no task for a request to a bookie: the transport calls back. Requests to the metadata store
are coroutines and get a task each, which is fine for something that happens a few times in a
ledger's life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol

from ledgerlog_spark.client.errors_from_codes import outcome_of
from ledgerlog_spark.client.event_queue import EventQueue
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import InternalError, LedgerLogError, WireFormatError
from ledgerlog_spark.metadata.log_store_port import LogStore
from ledgerlog_spark.metadata.port import Leases, LedgerStore, Registration
from ledgerlog_spark.model import NO_ENTRY, Code, DigestType
from ledgerlog_spark.protocol.entry_batch import EntryBatch
from ledgerlog_spark.protocol.messages import (
    AddReplied,
    BatchReplied,
    BookiesListed,
    CasMetadata,
    Event,
    LacReplied,
    ListBookies,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    ReadReplied,
    Run,
    SendAdd,
    SendRead,
    SendReadBatch,
    SendReadLac,
    StartTimer,
    StoredEntry,
)
from ledgerlog_spark.transport.port import AddRun, BookieTransport, ReadBatch, ReadEntry
from ledgerlog_spark.wire.entry_codec import EntryCodec
from ledgerlog_spark.wire.master_key import master_key


class Machine(Protocol):
    """What the protocol's machines have in common."""

    def handle(self, event: Any) -> Sequence[Any]:
        """The effects of one event."""


@dataclass(slots=True)
class Services:
    """What all handles of one client share.

    Attributes:
        logs: The logs of the cluster, for `log/`; None where there are only ledgers.
        leases: Of the cluster, for `upkeep/`; None where nobody needs them.
    """

    transport: BookieTransport
    ledgers: LedgerStore
    registration: Registration
    settings: ClientSettings
    random: Random
    logs: LogStore | None = None
    leases: Leases | None = None

    async def candidates(self) -> tuple[str, ...]:
        """Writable bookies in random order.

        Raises:
            MetadataUnavailableError: The registration cannot be read.
        """
        async with asyncio.timeout(self.settings.metadata_timeout_ms / 1e3):
            names = list(await self.registration.writable())
        self.random.shuffle(names)
        return tuple(names)


class LedgerBytes:
    """How one ledger's entries look on the wire: its digest and its master key."""

    __slots__ = ("codec", "has_explicit_lac", "ledger_id", "master_key")

    def __init__(
        self,
        ledger_id: int,
        digest_type: DigestType,
        password: bytes,
        *,
        has_explicit_lac: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.has_explicit_lac = has_explicit_lac
        self.codec = EntryCodec(digest_type, password)
        self.master_key = master_key(password)

    def add_run(self, effect: SendAdd) -> AddRun:
        """The request for one bookie; a run's bytes are built once and shared by all of them."""
        run = effect.run
        whole = run.attachment
        if whole is None:
            whole = run.attachment = self._encode(run, is_recovery=effect.is_recovery)
        assert isinstance(whole, AddRun)
        assert whole.is_recovery is effect.is_recovery
        if effect.entry_ids is None:
            return whole
        first = run.first_entry_id
        return AddRun(
            ledger_id=self.ledger_id,
            entry_ids=effect.entry_ids,
            entries=[whole.entries[entry_id - first] for entry_id in effect.entry_ids],
            master_key=self.master_key,
            is_recovery=effect.is_recovery,
        )

    def verified(self, stored: bytes | None, entry_id: int) -> StoredEntry | None:
        """The entry, None when the bytes are not what was asked for."""
        if stored is None:
            return None
        try:
            _, found_id, confirmed, length, payload = self.codec.decode(
                stored, self.ledger_id, entry_id
            )
        except WireFormatError:
            return None
        return StoredEntry(found_id, confirmed, length, payload)

    def verified_batch(self, stored: Sequence[bytes], first_entry_id: int) -> EntryBatch | None:
        """Entries from the first on, up to the first bad one; None without a good one."""
        columns = self.codec.decode_prefix(stored, self.ledger_id, first_entry_id)
        return None if columns is None else EntryBatch(first_entry_id, *columns)

    def _encode(self, run: Run, *, is_recovery: bool) -> AddRun:
        return AddRun(
            ledger_id=self.ledger_id,
            entry_ids=range(run.first_entry_id, run.last_entry_id + 1),
            entries=self.codec.encode_run(
                ledger_id=self.ledger_id,
                first_entry_id=run.first_entry_id,
                last_add_confirmed=run.last_add_confirmed,
                length=run.length_before,
                payloads=run.payloads,
            ),
            master_key=self.master_key,
            is_recovery=is_recovery,
        )


OnIndication = Callable[[Any], None]
OnCrash = Callable[[InternalError], None]


class MachineHost(EventQueue):
    """Drives one machine. All methods on the event loop's thread."""

    def __init__(
        self,
        machine: Machine,
        *,
        services: Services,
        ledger: LedgerBytes,
        on_indication: OnIndication,
        on_crash: OnCrash,
        on_settled: Callable[[], None] | None = None,
    ) -> None:
        """A host that has not called the machine yet.

        Args:
            machine: To drive; nobody else calls its `handle`.
            services: Of the client.
            ledger: Of the machine's ledger.
            on_indication: Gets the machine's indications, in order.
            on_crash: Gets the one `InternalError` of a machine that failed.
            on_settled: Called after each burst of events, when nothing is queued.
        """
        super().__init__(
            subject=f"{type(machine).__name__} of ledger {ledger.ledger_id}",
            about={"ledger_id": ledger.ledger_id},
            random=services.random,
            on_crash=on_crash,
            on_settled=on_settled,
        )
        self._machine = machine
        self._services = services
        self._ledger = ledger
        self._on_indication = on_indication
        self._open: set[int] = set()
        self._performers: dict[type, Callable[[Any], None]] = {
            SendAdd: self._send_add,
            SendRead: self._send_read,
            SendReadBatch: self._send_read_batch,
            SendReadLac: self._send_read_lac,
            LoadMetadata: self._load_metadata,
            CasMetadata: self._cas_metadata,
            ListBookies: self._list_bookies,
            StartTimer: self._start_timer,
        }

    def stop(self) -> None:
        """Forget the machine: no more events, timers or replies. Open requests run out."""
        super().stop()
        self._open.clear()
        for task in self._tasks:
            task.cancel()

    def _step(self, event: Event) -> None:
        self._history.append(_brief(event))
        try:
            for effect in self._machine.handle(event):
                perform = self._performers.get(type(effect))
                if perform is None:
                    self._on_indication(effect)
                else:
                    self._open.add(effect.request)
                    perform(effect)
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine is not to be trusted
            self._fail(error)

    def _text(self, event: str | tuple[str, int, object]) -> str:
        return event if isinstance(event, str) else " ".join(map(str, event))

    def _reply(self, event: Event) -> None:
        """Pass on the first reply to a request that is still open."""
        request = event.request  # type: ignore[union-attr]
        if request in self._open:
            self._open.discard(request)
            self.post(event)

    # --- bookies: the transport answers each exactly once, its deadline included ---

    def _send_add(self, effect: SendAdd) -> None:
        self._services.transport.add(
            effect.bookie_id,
            self._ledger.add_run(effect),
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

    def _send_read_lac(self, effect: SendReadLac) -> None:
        if self._ledger.has_explicit_lac:
            # The larger of what was announced and what is in the headers.
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
            self._send_read_last(effect)  # it may be the control service alone that cannot answer

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

    def _load_metadata(self, effect: LoadMetadata) -> None:
        self._spawn(self._load(effect))

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
                outcome = MetadataOutcome.UNAVAILABLE  # nothing was written: there is no doubt
        self._reply(MetadataLoaded(effect.request, outcome, versioned))

    def _cas_metadata(self, effect: CasMetadata) -> None:
        self._spawn(self._cas(effect))

    async def _cas(self, effect: CasMetadata) -> None:
        versioned = None
        try:
            async with asyncio.timeout(self._services.settings.metadata_timeout_ms / 1e3):
                versioned = await self._services.ledgers.write(
                    self._ledger.ledger_id, effect.metadata, effect.version
                )
            outcome = MetadataOutcome.OK
        except TimeoutError:
            outcome = MetadataOutcome.UNKNOWN
        except LedgerLogError as error:
            outcome = _outcome_or_raise(error)
        self._reply(MetadataWritten(effect.request, outcome, versioned))

    def _list_bookies(self, effect: ListBookies) -> None:
        self._spawn(self._list(effect))

    async def _list(self, effect: ListBookies) -> None:
        try:
            candidates = await self._services.candidates()
        except TimeoutError:
            candidates = ()
        except LedgerLogError as error:
            _outcome_or_raise(error)
            candidates = ()
        self._reply(BookiesListed(effect.request, candidates))


def _outcome_or_raise(error: LedgerLogError) -> MetadataOutcome:
    outcome = outcome_of(error)
    if outcome is None:
        raise error
    return outcome


def _brief(event: Event) -> str | tuple[str, int, object]:
    """What is kept of an event for a report: no payloads, and cheap for the hot ones."""
    kind = type(event)
    if kind is AddReplied:
        return "AddReplied", event.request, event.code  # type: ignore[union-attr]
    if kind is BatchReplied:
        return "BatchReplied", event.request, event.code  # type: ignore[union-attr]
    if kind is ReadReplied:
        return "ReadReplied", event.request, event.code  # type: ignore[union-attr]
    if kind.__name__ == "AddRequested":
        return f"AddRequested({len(event.payloads)} entries)"  # type: ignore[union-attr]
    return repr(event)
