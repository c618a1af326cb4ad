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
from ledgerlog_spark.client.arguments import check_callback, check_iterable, check_type
from ledgerlog_spark.client.handles.creation import (
    CreateRecord,
    DrawnIds,
    LedgerSpec,
    NewLedger,
    check_ledger_password,
    checked_ledger_id,
    checked_password,
    create_record,
    placed,
)
from ledgerlog_spark.client.handles.known_ends import KnownEnds
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.recovered import recovered
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.lost_members import LostMembers
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
    LocalProtocolError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import NO_ENTRY, Code, DigestType, LedgerMetadata, Quorum, Versioned
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.transport.port import ReadEntry
from ledgerlog_spark.waits import forever

IDS_MAX = 64
"""Maximum number of ids that one call of `new_ledger_ids` returns."""

REPORT_SECONDS_MAX = 5
"""Maximum time in seconds for which `aclose` waits until holes are reported."""

LOADS_AT_ONCE = 100
"""Maximum number of ledgers whose metadata `recent_records` reads at the same time."""


class LedgerClient:
    """Ledgers of one cluster. Call all methods on the event loop that created the client.

    Attributes:
        services: The transport and the stores. All handles and the package `log` share them.
        ends_first: A function that registers an object that must be ended before this client is
            closed. See `Users.add`.
    """

    def __init__(
        self, services: Services, *, on_close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Create a client that uses `services`. `on_close` closes the transport and the stores."""
        self.services = services
        self._on_close = on_close
        self._writers: weakref.WeakSet[WriteHandle] = weakref.WeakSet()
        self._lost_members = LostMembers(services, lambda: tuple(self._writers))
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
        """Create a ledger in the metadata store, and return its write handle.

        Args:
            ensemble_size: Number of bookies that store the ledger (E).
            write_quorum: Number of copies of each entry (Qw), at most E.
            ack_quorum: Number of copies on disk before an append is acknowledged (Qa), at most Qw.
            digest_type: The type of the digest of each entry: CRC32C, CRC32, HMAC or DUMMY.
            password: The password that clients need to read or seal the ledger. It has at most
                1,024 bytes, and is stored without encryption.
            custom_metadata: Names and bytes that are stored in the metadata of the ledger.
            explicit_lac: Whether an idle writer writes its last add confirmed to the bookies,
                through their control service. If so, readers see the last entry within 100 ms even
                if no append follows, and the custom metadata also contains `ledgerlog.lac`.
            changes_ensemble: Whether failed bookies are replaced. If false, the first failure of a
                bookie ends the handle.

        Raises:
            ConfigurationError: An argument is wrong. No request was sent.
            NotEnoughBookiesError: The writable bookies are too few, or do not allow an ensemble
                that keeps the policy of placement. The fields `wanted` and `available` of the error
                contain the needed and the found number.
            MetadataUnavailableError: ZooKeeper cannot be reached. Nothing was created.
            MetadataUnknownError: An empty ledger with an unknown id may exist.
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
        return self._writing(spec, await create_record(self.services, spec))

    async def create_registered_ledger(
        self,
        create: CreateRecord,
        spec: LedgerSpec,
        *,
        ledger_id: int | None = None,
        listener: AppendListener | None = None,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> WriteHandle:
        """Create a ledger and other nodes in one transaction, and return the write handle.

        Args:
            create: The function that creates the metadata of the ledger and the other nodes.
            spec: Describes the new ledger.
            ledger_id: An unused id that `new_ledger_ids` returned. If this is None, a new id is
                requested.
            listener: The object that receives the progress of the handle; None for callers on the
                event loop.
            on_failed: The function that gets the error if the handle fails, so that it accepts no
                more appends. `on_failed` is not called when the handle is closed.

        Raises:
            LocalProtocolError: `ledger_id` was not returned by `new_ledger_ids` of this client, or
                was used before.
            LedgerLogError: The errors of `create_ledger` and of `create`.
        """
        self.check_open()
        drawn_id = None if ledger_id is None else self._drawn.use(ledger_id)
        created = await create_record(self.services, spec, drawn_id=drawn_id, create=create)
        handle = self._writing(spec, created, on_failed=on_failed)
        handle.queue.listener = listener
        return handle

    def _writing(
        self,
        spec: LedgerSpec,
        created: NewLedger,
        *,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> WriteHandle:
        handle = WriteHandle(
            ledger_id=created.ledger_id,
            created=created.record,
            services=self.services,
            changes_ensemble=spec.changes_ensemble,
            absent=created.absent,
            on_closed=partial(self._ends.newest, created.ledger_id),
            on_failed=on_failed,
        )
        if self._is_closed:  # the client was closed while the ledger was created
            handle.abandon()
            return handle
        self._writers.add(handle)
        self._lost_members.begin()
        return handle

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Return `count` (at most 64) new ledger ids, ascending. No other call gets these ids.

        Each id can be passed once to `create_registered_ledger` of this client.

        Raises:
            LocalProtocolError: `count` is not a number from 1 to 64.
            MetadataUnavailableError: ZooKeeper cannot be reached, and no ids were returned.
        """
        self.check_open()
        check_type("count", count, int)
        if not 1 <= count <= IDS_MAX:
            raise LocalProtocolError(
                f"count must be between 1 and {IDS_MAX}, got {count}", argument="count", count=count
            )
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
        """Return a read handle of a ledger in any state.

        The call does not fence or change the ledger.

        The handle's end of the ledger is never before an end that this client found earlier. The
        client remembers the ends of the 10,000 ledgers that it used last.

        Args:
            ledger_id: Id of the ledger.
            password: The password that the ledger was created with.
            is_listed: Whether the caller will read only ranges that a durable list contains. If so,
                the last add confirmed is not read from bookies. Its value is NO_ENTRY, or the value
                that this client read before.
            may_be_outdated: Whether metadata that this client read in the last 60 s may be used. If
                a read of entries shows that the metadata is outdated, the metadata is read again.

        Raises:
            ConfigurationError: No ledger can have this id.
            LedgerNotFoundError: The ledger does not exist, even after a sync with ZooKeeper.
            UnauthorizedError: The password is wrong; no bookie was contacted.
            EntryUnknownError: No bookie of the last ensemble reported a last add confirmed.
            MetadataUnavailableError: The metadata could not be read.
        """
        self.check_open()
        ledger_id = checked_ledger_id(ledger_id)
        checked_password(password)
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
        if self._is_closed:  # the client was closed while the metadata was loaded
            await handle.aclose()
            self.check_open()
        self._readers.add(handle)
        if not handle.is_closed and not is_listed:
            await handle.read_last_add_confirmed()
        return handle

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = NO_ENTRY
    ) -> LedgerMetadata:
        """Fence, recover and close a ledger, and return its metadata. A repetition is harmless.

        After the call, the closed ledger contains each entry that was ever acknowledged, and an ack
        quorum of bookies has each of these entries.

        Args:
            ledger_id: Id of the ledger.
            password: The password that the ledger was created with.
            floor_entry_id: Highest entry id that a log or another durable list contains.

        Raises:
            ConfigurationError: No ledger can have this id.
            LedgerNotFoundError: The ledger does not exist, even after a sync with ZooKeeper.
            UnauthorizedError: The password is wrong; no bookie was contacted.
            LedgerRecoveryError: The seal could not determine whether an entry exists, or a bookie
                lost its new entries before the close. The ledger stays IN_RECOVERY, and may be
                sealed again.
            NotEnoughBookiesError: Too few bookies can store recovered entries; retriable.
            NeedsOperatorError: The recovered ledger would end before `floor_entry_id`. The end of a
                ledger that was already closed is not compared with `floor_entry_id`.
            MetadataUnavailableError: The metadata could not be read or written; retriable.
        """
        check_type("floor_entry_id", floor_entry_id, int)
        loaded = await self._load_checked(ledger_id, password, sync_first=True)
        if loaded.value.is_closed:
            sealed = loaded.value
        else:
            sealed = await recovered(
                self.services, ledger_id, loaded.value, password, floor_entry_id
            )
        return self._ends.newest(ledger_id, sealed)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete the metadata of a ledger. Bookies delete its entries later.

        A repetition is harmless.

        Raises:
            ConfigurationError: No ledger can have this id.
            MetadataUnavailableError: ZooKeeper cannot be reached. The ledger was not deleted.
            MetadataUnknownError: The ledger may have been deleted; the caller may delete it again.
        """
        self.check_open()
        await self.services.ledgers.delete(checked_ledger_id(ledger_id))

    async def list_ledgers(self) -> AsyncIterator[int]:
        """Yield all ledger ids in ascending order.

        A ledger that is created or deleted during the iteration may be missing or included.

        Raises:
            MetadataError: There is no cluster at the path of the service URI, or the store failed.
                The ids that were yielded before may be incomplete.
        """
        self.check_open()
        async for ledger_id in self.services.ledgers.ids():
            yield ledger_id

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return the current metadata of a ledger. The call needs no password.

        Raises:
            ConfigurationError: No ledger can have this id.
            LedgerNotFoundError: The ledger does not exist, even after a sync with ZooKeeper.
            MetadataUnavailableError: The metadata could not be read.
        """
        return (await self._load(ledger_id)).value

    async def recent_records(self, ledger_ids: Iterable[int]) -> dict[int, LedgerMetadata]:
        """Return the metadata of ledgers by ledger id. The metadata is at most 60 s old.

        Ledgers that do not exist are omitted. If the metadata of all ledgers exceeds 16 MiB, the
        result contains only the first ledgers of `ledger_ids`.

        Raises:
            MetadataUnavailableError: The metadata of a ledger could not be read.
        """
        records: dict[int, LedgerMetadata] = {}

        async def load(ledger_id: int) -> None:
            with contextlib.suppress(LedgerNotFoundError):
                records[ledger_id] = (await self._load(ledger_id)).value

        check_iterable("ledger_ids", ledger_ids)
        wanted = list(dict.fromkeys(map(checked_ledger_id, ledger_ids)))
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
        """Store metadata that another client read.

        It is used by `open_ledger` with `may_be_outdated`.
        """
        check_type("records", records, Mapping)
        for ledger_id, record in records.items():
            check_type("each of records", record, LedgerMetadata)
            if self._recent.get(ledger_id) is None:
                self._recent.put(ledger_id, record)

    async def entry_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int
    ) -> Mapping[str, Code]:
        """Read an entry from each bookie of its write set, and return each bookie's answer code.

        The client does not verify the digest of the entry. But each bookie verifies its own
        checksums before it answers OK.

        Args:
            ledger_id: Id of the ledger.
            metadata: Metadata of the ledger.
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
        """Raise an error if a ledger of `quorum` cannot be created now. The call changes nothing.

        Raises:
            MetadataError: There is no cluster at the path of the service URI.
            NotEnoughBookiesError: There are fewer writable bookies than the ensemble needs. The
                message contains the two numbers.
            MetadataUnavailableError: The registrations of the bookies cannot be read.
        """
        self.check_open()
        try:
            await placed(self.services, quorum)
        except NotEnoughBookiesError as error:
            if not error.available:
                await self.services.registration.instance_id()
            raise

    async def aclose(self) -> None:
        """Close all connections. The ledgers of write handles stay open, and can be sealed later.

        Before that, the waiting reports of holes are written, for at most 5 s.

        Before the reports, each leader deletes its unlisted ledgers. This takes at most 5 s, or
        `close_timeout_ms` if that is shorter. The leader then stops without closing its other
        ledgers, which the next leader seals.
        """
        try:
            await self._users.leave(self.services.settings.close_timeout_ms)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS_MAX):
                    await self.services.holes.drained()
        finally:
            await self._cut_off()

    async def _cut_off(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for on_closed in tuple(self._closing):
            notify(on_closed)
        self._lost_members.stop()
        for writer in list(self._writers):
            writer.abandon()
        self.services.holes.stop()
        for reader in list(self._readers):
            await reader.aclose()
        if self._on_close is not None:
            await self._on_close()

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        """Register `on_closed`, and return a function that unregisters it.

        `on_closed` is called when this client is closed.

        Raises:
            LocalProtocolError: The client is already closed, so `on_closed` was not registered.
        """
        check_callback(on_closed, "on_closed")
        self.check_open()
        self._closing.add(on_closed)
        return lambda: self._closing.discard(on_closed)

    def check_open(self) -> None:
        """Raise LocalProtocolError if this client was closed.

        Raises:
            LocalProtocolError: The client was closed.
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
