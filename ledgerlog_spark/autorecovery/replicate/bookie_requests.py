"""The requests of replication jobs to bookies: lists, syncs, reads with verified digests, adds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import NO_ENTRY, BookieInfo, Code, DigestType, LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.replicate import messages as m
from ledgerlog_spark.protocol.autorecovery.replicate.pace import CopyPace
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import joined
from ledgerlog_spark.transport.port import (
    NO_BATCHES,
    AddRun,
    BookieTransport,
    EntryLister,
    OnRead,
    ReadBatch,
    ReadEntry,
)
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec

READ_SIZE_BYTES_MAX = 1 << 20
"""Maximum size of one answer. An entry that is larger is read alone."""


class CopyTransport(BookieTransport, EntryLister, Protocol):
    """A transport that also lists entries, and counts its connections."""

    def recovery_connections(self, bookie_id: str) -> int:
        """Return the number of connections to a bookie that were opened for recovery adds."""


class ControlReads(Protocol):
    """Sends reads to the control service, which answers after all earlier adds are durable."""

    def read(self, bookie_id: str, request: ReadEntry, timeout_ms: int, on_reply: OnRead) -> None:
        """Read one stored entry."""


@dataclass(slots=True)
class CopyCounters:
    """The number of entries and bytes that the jobs of a worker have copied."""

    entries_copied: int = 0
    bytes_copied: int = 0
    copies_refused: int = 0  # number of entries that bookies returned with a wrong digest


class BookieRequests:
    """Performs the requests of all jobs of one worker."""

    def __init__(
        self,
        transport: CopyTransport,
        control: ControlReads,
        info_of: Callable[[str], Awaitable[BookieInfo]],
        pace: CopyPace,
        counters: CopyCounters,
        timeout_ms: int,
        accepted: AcceptedEntries,
    ) -> None:
        """Create an object that sends nothing before its first request.

        Args:
            transport: Sends reads, adds and lists.
            control: Sends the reads before whose answers a bookie syncs all entries.
            info_of: Reads the registration of a bookie.
            pace: Limits the rate of copying.
            counters: Counts the copies.
            timeout_ms: Deadline of each request.
            accepted: The entries that an operator gave up.
        """
        self._accepted = accepted
        self._transport = transport
        self._control = control
        self._info_of = info_of
        self._pace = pace
        self._counters = counters
        self._timeout_ms = timeout_ms

    def performs(
        self, ledger_id: int, metadata: Callable[[], LedgerMetadata]
    ) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
        """Return the functions that perform the requests of a job.

        `metadata` returns the newest metadata of the ledger.
        """
        return {
            m.ListEntries: partial(self._list, ledger_id),
            m.ForceEntries: partial(self._force, ledger_id),
            m.ReadCopies: partial(self._read, ledger_id, metadata),
            m.AddCopies: partial(self._add, ledger_id, metadata),
        }

    async def read_lac(self, bookie_id: str, ledger_id: int) -> int:
        """Return the LAC of a ledger on a bookie; NO_ENTRY if the bookie does not answer."""
        send = partial(self._transport.read_lac, bookie_id, ledger_id)
        code, last_add_confirmed = await self._reply(send)
        return last_add_confirmed if code is Code.OK else NO_ENTRY

    async def _list(self, ledger_id: int, effect: m.ListEntries) -> m.EntriesListed:
        number = effect.request
        try:
            info = await self._info_of(effect.bookie_id)
            given_up = await self._accepted.of_ledger(ledger_id)
        except LedgerLogError:
            return m.EntriesListed(number, Code.UNAVAILABLE)
        if info.grpc_port is None:
            return m.EntriesListed(number, Code.BAD_REQUEST, (), given_up)
        send = partial(self._transport.list_entries, effect.bookie_id, ledger_id)
        code, ranges = await self._reply(send)
        if not (code.is_absent or code is Code.OK):
            return m.EntriesListed(number, code, (), given_up)
        held = () if code.is_absent else tuple(ranges)
        listed = tuple(joined([*held, *given_up])) if given_up else held
        return m.EntriesListed(number, Code.OK, listed, given_up)

    async def _force(self, ledger_id: int, effect: m.ForceEntries) -> m.EntriesForced:
        """Read an entry as a recovery does. The bookie answers after all earlier adds are durable.

        A bookie without a control service does not support this read, so no request is sent to it.
        """
        request = ReadEntry(ledger_id, effect.entry_id, is_recovery=True)
        code, _ = await self._reply(partial(self._control.read, effect.bookie_id, request))
        return m.EntriesForced(effect.request, code)

    async def _read(
        self, ledger_id: int, metadata: Callable[[], LedgerMetadata], effect: m.ReadCopies
    ) -> m.CopiesRead:
        number, bookie_id = effect.request, effect.bookie_id
        first, count = effect.first_entry_id, effect.count_max
        code, stored = Code.BAD_REQUEST, list[bytes]()
        if count > 1:
            request = ReadBatch(ledger_id, first, count, READ_SIZE_BYTES_MAX)
            send = partial(self._transport.read_batch, bookie_id, request)
            code, found = await self._reply(send)
            stored = list(found) if code is Code.OK else []
        if count == 1 or code in NO_BATCHES or (code is Code.OK and not stored):
            send_one = partial(self._transport.read, bookie_id, ReadEntry(ledger_id, first))
            code, one = await self._reply(send_one)
            stored = [one] if code is Code.OK and one is not None else []
        if code is not Code.OK:
            return m.CopiesRead(number, code)
        copies = verified_copies(metadata(), ledger_id, first, stored[:count])
        if not copies:
            self._counters.copies_refused += 1
            return m.CopiesRead(number, Code.DIGEST_MISMATCH)
        wait_ms = self._pace.take(sum(len(one.stored) for one in copies), _now_ms())
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1e3)
        return m.CopiesRead(number, Code.OK, copies)

    async def _add(
        self, ledger_id: int, metadata: Callable[[], LedgerMetadata], effect: m.AddCopies
    ) -> m.CopiesAdded:
        copies, bookie_id = effect.copies, effect.bookie_id
        run = AddRun(
            ledger_id,
            _ids_of(copies),
            [[one.stored] for one in copies],
            master_key(metadata().password),
            is_recovery=True,
        )
        began_ms, size_bytes = _now_ms(), sum(len(one.stored) for one in copies)
        with self._pace.adding(bookie_id, size_bytes) as load:
            (code,) = await self._reply(partial(self._transport.add, bookie_id, run))
        if code is Code.OK:
            now_ms = _now_ms()
            self._pace.add_took(now_ms - began_ms, now_ms, load)
            self._counters.entries_copied += len(copies)
            self._counters.bytes_copied += size_bytes
        connection = self._transport.recovery_connections(bookie_id)
        return m.CopiesAdded(effect.request, code, connection)

    async def _reply(self, send: Callable[[int, Callable[..., None]], None]) -> Any:
        """Send a request with `send`, and return the arguments of its callback."""
        answered: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

        def on_reply(*reply: Any) -> None:
            if not answered.done():
                answered.set_result(reply)

        send(self._timeout_ms, on_reply)
        return await forever(answered, "the transport answers each request by its deadline")


def verified_copies(
    metadata: LedgerMetadata, ledger_id: int, first_entry_id: int, stored: list[bytes]
) -> tuple[m.Copy, ...]:
    """Return the entries before the first with a wrong digest or header (AUTORECOVERY.md#X10)."""
    codec = _codec(metadata.digest_type, metadata.password)
    columns = codec.decode_prefix(stored, ledger_id, first_entry_id)
    if columns is None:
        return ()
    _, lengths, payloads = columns
    ids = range(first_entry_id, first_entry_id + len(payloads))
    return tuple(map(m.Copy, ids, lengths, payloads, stored))


def _ids_of(copies: tuple[m.Copy, ...]) -> range | tuple[int, ...]:
    """Return the ids of the copies; consecutive ids as a range, which has a shorter encoding."""
    first, last = copies[0].entry_id, copies[-1].entry_id
    if last - first + 1 == len(copies):
        return range(first, last + 1)
    return tuple(one.entry_id for one in copies)


@lru_cache(maxsize=64)
def _codec(digest_type: DigestType, password: bytes) -> EntryCodec:
    return EntryCodec(digest_type, password)


def _now_ms() -> float:
    return time.monotonic() * 1e3
