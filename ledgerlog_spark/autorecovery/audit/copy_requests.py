"""The requests of the checks to bookies: lists of entries, and reads with verified digests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Protocol

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import BookieInfo, Code, DigestType, LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import covers
from ledgerlog_spark.transport.port import (
    NO_BATCHES,
    BookieTransport,
    EntryLister,
    ReadBatch,
    ReadEntry,
)
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.entry import EntryCodec

READ_SIZE_BYTES_MAX = 1 << 20
"""Maximum size of one answer. An entry that is larger is read alone."""


class AuditTransport(BookieTransport, EntryLister, Protocol):
    """A transport that can also list entries."""


class CopyRequests:
    """Performs the checks' requests to bookies."""

    def __init__(
        self,
        transport: AuditTransport,
        info_of: Callable[[str], Any],
        timeout_ms: int,
        accepted: AcceptedEntries,
    ) -> None:
        """Create an object that sends nothing before its first request.

        Args:
            transport: Sends the requests.
            info_of: Reads the registration of a bookie.
            timeout_ms: Deadline of each request.
            accepted: The entries that an operator gave up.
        """
        self._accepted = accepted
        self._transport = transport
        self._info_of = info_of
        self._timeout_ms = timeout_ms
        self.performs: Mapping[type, Callable[[Any], Any]] = {
            m.ListCopies: self._list,
            m.VerifyCopies: self._verify,
        }

    async def _list(self, effect: m.ListCopies) -> m.CopiesListed:
        try:
            info: BookieInfo = await self._info_of(effect.bookie_id)
        except LedgerLogError:
            return m.CopiesListed(effect.request, m.ListOutcome.UNKNOWN)
        if info.grpc_port is None:
            return m.CopiesListed(effect.request, m.ListOutcome.UNSUPPORTED)
        code, ranges = await self._reply(
            partial(self._transport.list_entries, effect.bookie_id, effect.ledger_id)
        )
        if code is Code.OK or code.is_absent:
            listed = () if code.is_absent else ranges
            try:
                listed = await self._accepted.added_to(effect.ledger_id, listed)
            except LedgerLogError:
                return m.CopiesListed(effect.request, m.ListOutcome.UNKNOWN)
            return m.CopiesListed(effect.request, m.ListOutcome.LISTED, listed)
        is_unable = code is Code.BAD_REQUEST
        outcome = m.ListOutcome.UNSUPPORTED if is_unable else m.ListOutcome.UNKNOWN
        return m.CopiesListed(effect.request, outcome)

    async def _verify(self, effect: m.VerifyCopies) -> m.CopiesVerified:
        """Read the entries before the first gap in their ids, because one request has no gaps.

        An entry that was given up counts neither as absent nor as damaged.
        """
        read = await self._read(effect)
        if not (read.absent or read.damaged):
            return read
        try:
            given_up = await self._accepted.of_ledger(effect.record.ledger_id)
        except LedgerLogError:
            return m.CopiesVerified(effect.request, effect.entry_ids[0] - 1, is_unknown=True)
        if not given_up:
            return read
        return replace(
            read,
            absent=tuple(one for one in read.absent if not covers(given_up, one)),
            damaged=tuple(one for one in read.damaged if not covers(given_up, one)),
        )

    async def _read(self, effect: m.VerifyCopies) -> m.CopiesVerified:
        first = effect.entry_ids[0]
        count = next(
            (n for n, one in enumerate(effect.entry_ids) if one != first + n),
            len(effect.entry_ids),
        )
        ledger_id = effect.record.ledger_id
        request = ReadBatch(ledger_id, first, count, READ_SIZE_BYTES_MAX)
        code, entries = await self._reply(
            partial(self._transport.read_batch, effect.bookie_id, request)
        )
        if code in NO_BATCHES:
            # The bookie has an older release, which does not support batch reads. If its entries
            # were not read one by one, all its copies would count as unknown.
            single = ReadEntry(ledger_id, first)
            code, one = await self._reply(partial(self._transport.read, effect.bookie_id, single))
            entries = [one] if code is Code.OK and one is not None else []
        if code.is_absent:
            return m.CopiesVerified(effect.request, first, absent=(first,))
        if code is Code.DIGEST_MISMATCH:
            return m.CopiesVerified(effect.request, first, damaged=(first,))
        if code is not Code.OK or not entries:
            return m.CopiesVerified(effect.request, first - 1, is_unknown=True)
        entries = entries[:count]
        damaged = damaged_in(effect.record.metadata, ledger_id, first, entries)
        return m.CopiesVerified(
            effect.request,
            first + len(entries) - 1,
            damaged=damaged,
            size_bytes=sum(map(len, entries)),
        )

    async def _reply(self, send: Callable[[int, Callable[..., None]], None]) -> Any:
        """Send a request with `send`, and return the arguments of its callback."""
        answered: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

        def on_reply(*reply: Any) -> None:
            if not answered.done():
                answered.set_result(reply)

        send(self._timeout_ms, on_reply)
        return await forever(answered, "the transport answers each request by its deadline")


def damaged_in(
    metadata: LedgerMetadata, ledger_id: int, first_entry_id: int, entries: Sequence[bytes]
) -> list[int]:
    """Return the ids of consecutive entries whose digest or header is wrong."""
    codec = _codec(metadata.digest_type, metadata.password)
    damaged = list[int]()
    position = 0
    while position < len(entries):
        entry_id = first_entry_id + position
        valid = codec.decode_prefix(entries[position:], ledger_id, entry_id)
        position += 0 if valid is None else len(valid.payloads)
        if position < len(entries):
            damaged.append(first_entry_id + position)
            position += 1
    return damaged


@lru_cache(maxsize=64)
def _codec(digest_type: DigestType, password: bytes) -> EntryCodec:
    return EntryCodec(digest_type, password)
