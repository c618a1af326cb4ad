"""The asyncio client: creates, opens, seals, lists and deletes ledgers."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Self

from ledgerlog_spark.callbacks import notify
from ledgerlog_spark.client.append_queue import AppendListener
from ledgerlog_spark.client.errors_from_codes import error_from_failure
from ledgerlog_spark.client.handles.creation import (
    CreateRecord,
    DrawnIds,
    LedgerSpec,
    check_ledger_password,
    checked_ledger_id,
    checked_password,
    create_record,
    placed,
)
from ledgerlog_spark.client.handles.known_ends import KnownEnds
from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.host.effects import result_of
from ledgerlog_spark.client.recent_records import (
    SIZE_BYTES_MAX,
    RecentRecords,
    memory_size_bytes,
)
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.users import Users
from ledgerlog_spark.errors import (
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import NO_ENTRY, Code, DigestType, LedgerMetadata, Quorum, Versioned
from ledgerlog_spark.protocol.ledger.messages import Indication, LedgerClosed, LedgerFailed
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from ledgerlog_spark.transport.port import ReadEntry
from ledgerlog_spark.waits import forever

LOADS_AT_ONCE = 100
"""Ledgers whose metadata `recent_records` reads at the same time."""


class LedgerClient:
    """Ledgers of one cluster. Call all methods on the event loop on which it was created.

    Attributes:
        services: The transport and the stores, shared by all handles; `log/` uses them too.
        ends_first: Objects that must be closed before this client; see `Users.add`.
    """

    def __init__(
        self, services: Services, *, on_close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """A client of `services`; `on_close` closes its components."""
        self.services = services
        self._on_close = on_close
        self._writers: weakref.WeakSet[WriteHandle] = weakref.WeakSet()
        self._readers: weakref.WeakSet[ReadHandle] = weakref.WeakSet()
        self._recent = RecentRecords()
        self._ends = KnownEnds()
        self._drawn = DrawnIds()
        self._closing: set[Callable[[], None]] = set()
        self._users = Users()
        self.ends_first = self._users.add
        self._is_closed = False

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: str | DigestType = "CRC32C",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        explicit_lac: bool = False,
        changes_ensemble: bool = True,
    ) -> WriteHandle:
        """The handle of a new ledger, whose metadata is in the metadata store.

        Args:
            ensemble_size: Bookies it is spread over (E).
            write_quorum: Copies of each entry (Qw), at most E.
            ack_quorum: Copies on disk before an append is acknowledged (Qa), at most Qw.
            digest_type: CRC32C, CRC32, HMAC or DUMMY.
            password: Required to read or seal the ledger; at most 1,024 bytes, stored in the clear.
            custom_metadata: Kept with the metadata.
            explicit_lac: Whenever the writer is idle, it writes its last add confirmed to bookies,
                through their control service, so that readers see its last entry within 100 ms
                without another append. Kept as custom metadata `ledgerlog.lac`.
            changes_ensemble: Replace failed bookies; if false, the first failure ends the handle.

        Raises:
            ConfigurationError: A bad argument, before any I/O.
            NotEnoughBookiesError: At once, with `wanted` and `available`.
            MetadataUnavailableError: Nothing was created.
            MetadataUnknownError: An empty ledger with an unknown id may remain.
        """
        self.check_open()
        spec = LedgerSpec(
            Quorum(ensemble_size, write_quorum, ack_quorum),
            digest_type,
            password,
            custom_metadata,
            explicit_lac,
            changes_ensemble,
        )
        return self._writing(spec, *await create_record(self.services, spec))

    async def create_registered_ledger(
        self,
        create: CreateRecord,
        spec: LedgerSpec,
        *,
        ledger_id: int | None = None,
        listener: AppendListener | None = None,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> WriteHandle:
        """The handle of a new ledger that is registered elsewhere in the same transaction.

        Args:
            create: Creates the metadata, and the nodes that belong to it.
            spec: Describes the new ledger.
            ledger_id: One of `new_ledger_ids`, which cannot be used again; None draws one.
            listener: Receives the progress of the handle; None for callers on the event loop.
            on_failed: Gets the reason why appends are no longer accepted, unless the handle is
                closed.

        Raises:
            LocalProtocolError: `ledger_id` was not drawn by this client, or was used before.
            LedgerLogError: As in `create_ledger`, and the errors of `create`.
        """
        self.check_open()
        drawn_id = None if ledger_id is None else self._drawn.use(ledger_id)
        created = await create_record(self.services, spec, drawn_id=drawn_id, create=create)
        handle = self._writing(spec, *created, on_failed=on_failed)
        handle.queue.listener = listener
        return handle

    def _writing(
        self,
        spec: LedgerSpec,
        ledger_id: int,
        created: Versioned[LedgerMetadata],
        *,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> WriteHandle:
        handle = WriteHandle(
            ledger_id=ledger_id,
            created=created,
            services=self.services,
            changes_ensemble=spec.changes_ensemble,
            on_closed=partial(self._ends.newest, ledger_id),
            on_failed=on_failed,
        )
        self._writers.add(handle)
        return handle

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Ids that no other call gets, rising; at most 64.

        For `create_registered_ledger` of this client, each once.

        Raises:
            MetadataUnavailableError: None were taken.
        """
        self.check_open()
        drawn = await self.services.ledgers.new_ids(count)
        self._drawn.add(drawn)
        return drawn

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        is_listed: bool = False,
        may_be_outdated: bool = False,
    ) -> ReadHandle:
        """A handle for reading a ledger in any state. Never fences, changes nothing.

        Its end is never before an end that this client has seen, for the last 10,000 ledgers.

        Args:
            ledger_id: Id of the ledger.
            password: The password that the ledger was created with.
            is_listed: Only ranges that a durable list names will be read. So the last add confirmed
                is not read from bookies: it is NO_ENTRY, or the value that this client saw before.
            may_be_outdated: The metadata may be up to 60 s old, as this client read it; reads that
                find it outdated load it again.

        Raises:
            ConfigurationError: No ledger can have that id.
            LedgerNotFoundError: The ledger does not exist, also after a sync.
            UnauthorizedError: Wrong password; no bookie was contacted.
            EntryUnknownError: Too few bookies answered to determine the last add confirmed.
            MetadataUnavailableError: The metadata could not be read.
        """
        self.check_open()
        metadata = self._recent.get(ledger_id) if may_be_outdated else None
        if metadata is None:
            metadata = (await self._load_checked(ledger_id, password)).value
            self._recent.put(ledger_id, metadata)
        else:
            check_ledger_password(ledger_id, metadata, password)
        handle = ReadHandle(
            ledger_id=ledger_id,
            metadata=metadata,
            password=password,
            services=self.services,
            ends=self._ends,
            on_record=partial(self._recent.put, ledger_id),
        )
        self._readers.add(handle)
        if not handle.is_closed and not is_listed:
            await handle.read_last_add_confirmed()
        return handle

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = NO_ENTRY
    ) -> LedgerMetadata:
        """The closed metadata: fences the ledger, recovers its entries and closes it. Idempotent.

        Every entry that was ever acknowledged is in it, on an ack quorum.

        Args:
            ledger_id: Id of the ledger.
            password: The password that the ledger was created with.
            floor_entry_id: Highest entry that something durable refers to.

        Raises:
            ConfigurationError: No ledger can have that id.
            LedgerNotFoundError: The ledger does not exist, also after a sync.
            UnauthorizedError: Wrong password; no bookie was contacted.
            LedgerRecoveryError: An entry could be shown neither present nor absent; it stays
                IN_RECOVERY, and sealing it again is safe.
            NotEnoughBookiesError: Too few bookies to write back to; retriable.
            NeedsOperatorError: Closing would cut off `floor_entry_id`.
            MetadataUnavailableError: The metadata could not be read or written; retriable.
        """
        loaded = await self._load_checked(ledger_id, password, sync_first=True)
        if loaded.value.is_closed:
            sealed = loaded.value
        else:
            sealed = await self._recover(ledger_id, loaded.value, password, floor_entry_id)
        return self._ends.newest(ledger_id, sealed)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete the metadata, so that bookies delete the entries later. Idempotent.

        Raises:
            ConfigurationError: No ledger can have that id.
            MetadataUnavailableError: Not deleted.
            MetadataUnknownError: It may have been deleted; delete it again.
        """
        self.check_open()
        await self.services.ledgers.delete(checked_ledger_id(ledger_id))

    async def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids, rising; a snapshot of no single moment.

        Raises:
            MetadataError: There is no cluster at the root, or the store failed. Ids may be missing.
        """
        self.check_open()
        async for ledger_id in self.services.ledgers.ids():
            yield ledger_id

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """The current metadata; needs no password.

        Raises:
            ConfigurationError: No ledger can have that id.
            LedgerNotFoundError: The ledger does not exist, also after a sync.
            MetadataUnavailableError: It could not be read.
        """
        return (await self._load(ledger_id)).value

    async def recent_records(self, ledger_ids: Iterable[int]) -> dict[int, LedgerMetadata]:
        """Metadata that is at most 60 s old, without ledgers that do not exist.

        Only the first ledgers whose metadata fits into 16 MiB are read.

        Raises:
            MetadataUnavailableError: One could not be read.
        """
        records: dict[int, LedgerMetadata] = {}

        async def load(ledger_id: int) -> None:
            with contextlib.suppress(LedgerNotFoundError):
                records[ledger_id] = (await self._load(ledger_id)).value

        wanted = list(dict.fromkeys(ledger_ids))
        size_bytes = 0
        for start in range(0, len(wanted), LOADS_AT_ONCE):
            some = wanted[start : start + LOADS_AT_ONCE]
            records |= {i: record for i in some if (record := self._recent.get(i)) is not None}
            await asyncio.gather(*(load(i) for i in some if i not in records))
            for ledger_id in some:
                if ledger_id in records:
                    size_bytes += memory_size_bytes(records[ledger_id])
                    if size_bytes > SIZE_BYTES_MAX:
                        del records[ledger_id]
            if size_bytes > SIZE_BYTES_MAX:
                break
        self.remember(records)
        return records

    def remember(self, records: Mapping[int, LedgerMetadata]) -> None:
        """Keep metadata that another client has read, for handles that may be outdated."""
        for ledger_id, record in records.items():
            if self._recent.get(ledger_id) is None:
                self._recent.put(ledger_id, record)

    async def entry_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int
    ) -> Mapping[str, Code]:
        """The answer of each bookie of an entry's write set: OK, or why it has no copy.

        The digest is not verified; a bookie verifies its own checksums before it answers OK.

        Args:
            ledger_id: Id of the ledger.
            metadata: Its metadata.
            entry_id: Id of the entry.

        Raises:
            LocalProtocolError: The client is closed.
        """
        self.check_open()
        ensemble = metadata.fragment_of(entry_id).ensemble
        bookies = [ensemble[index] for index in write_set(metadata.quorum, entry_id)]
        codes = await asyncio.gather(*(self._copy(one, ledger_id, entry_id) for one in bookies))
        return dict(zip(bookies, codes, strict=True))

    async def _copy(self, bookie_id: str, ledger_id: int, entry_id: int) -> Code:
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

        def on_reply(code: Code, _entry: bytes | None) -> None:
            if not done.done():
                done.set_result(code)

        timeout_ms = self.services.settings.read_timeout_ms
        request = ReadEntry(ledger_id, entry_id)
        self.services.transport.read(bookie_id, request, timeout_ms, on_reply)
        return await forever(done, "the transport answers each request by its deadline")

    async def check_bookies(self, quorum: Quorum) -> None:
        """Raise unless a ledger of `quorum` could be placed now; nothing is changed.

        Raises:
            MetadataError: There is no cluster at the path of the service URI.
            NotEnoughBookiesError: Fewer writable bookies than the ensemble; names both numbers.
            MetadataUnavailableError: The registration cannot be read.
        """
        self.check_open()
        try:
            await placed(self.services, quorum)
        except NotEnoughBookiesError as error:
            if not error.available:
                await self.services.registration.instance_id()
            raise

    async def aclose(self) -> None:
        """End all connections. Ledgers that are being written stay open: seal them later.

        Leaders stop without closing, and delete ledgers that they created and have not listed: that
        takes at most 5 s, and `close_timeout_ms` of the settings. The next leader seals the rest.
        """
        try:
            await self._users.leave(self.services.settings.close_timeout_ms)
        finally:
            await self._cut_off()

    async def _cut_off(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for on_closed in tuple(self._closing):
            notify(on_closed)
        for writer in list(self._writers):
            writer.abandon()
        for reader in list(self._readers):
            await reader.aclose()
        if self._on_close is not None:
            await self._on_close()

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        """Call `on_closed` when this client is closed; returns a function that unregisters it.

        Raises:
            LocalProtocolError: It is closed already: `on_closed` would never be called.
        """
        self.check_open()
        self._closing.add(on_closed)
        return lambda: self._closing.discard(on_closed)

    def check_open(self) -> None:
        """Raise if this client was closed.

        Raises:
            LocalProtocolError: It was.
        """
        if self._is_closed:
            raise LocalProtocolError("the client is closed: connect again")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _load_checked(
        self, ledger_id: int, password: bytes, *, sync_first: bool = False
    ) -> Versioned[LedgerMetadata]:
        checked_password(password)
        loaded = await self._load(ledger_id, sync_first=sync_first)
        check_ledger_password(ledger_id, loaded.value, password)
        return loaded

    async def _load(self, ledger_id: int, *, sync_first: bool = False) -> Versioned[LedgerMetadata]:
        self.check_open()
        return await self.services.load_record(checked_ledger_id(ledger_id), sync_first=sync_first)

    async def _recover(
        self, ledger_id: int, metadata: LedgerMetadata, password: bytes, floor_entry_id: int
    ) -> LedgerMetadata:
        def take(indication: Indication) -> LedgerMetadata | LedgerLogError | None:
            if isinstance(indication, LedgerFailed):
                return error_from_failure(ledger_id, indication)
            return indication.versioned.value if isinstance(indication, LedgerClosed) else None

        return await result_of(
            LedgerRecovery(
                ledger_id=ledger_id,
                password=metadata.password,
                floor_entry_id=floor_entry_id,
                settings=self.services.settings.recovery,
            ),
            self.services,
            LedgerBytes(ledger_id, metadata.digest_type, password),
            take=take,
            stalled=lambda why: LedgerRecoveryError(
                f"ledger {ledger_id} was not sealed: {why}; seal it again", ledger_id=ledger_id
            ),
        )
