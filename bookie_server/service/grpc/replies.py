"""Builds replies with entries, and counts the bytes that these replies hold.

A reply holds bytes of a lane until the reply is sent. If a lane is full, the calls of clients that
do not take replies are ended (`service/grpc/stuck_calls.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from bookie_server.config import ANSWERS_RESERVE_BYTES
from bookie_server.core.requests import EntryStorage, StoredBatchRead
from bookie_server.errors import TooManyRangesError
from bookie_server.service.grpc.stream import Taken, Turns, give_back, taken_of
from bookie_server.service.grpc.stuck_calls import Stuck
from bookie_server.service.limits.budget import Budget, Share
from bookie_server.service.limits.lanes import REQUEST_OVERHEAD_BYTES
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.storage import slices
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.spans import Spans
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport import control_pb2 as pb

ATTEMPTS: Final = 2
"""Number of attempts to read a batch. The second attempt has room for a first entry that is larger
than expected."""
LISTINGS_MAX: Final = 4  # maximum number of lists that are built at the same time
RANGE_COST_BYTES: Final = 96
"""Memory of a range of entries until its reply is sent: 16 bytes in the list, 44 in the reply, and
at most 22 in the message. The message may exist twice, but only after the list is freed."""


class HeldReplies:
    """The bytes that replies hold until the replies are sent."""

    def __init__(self) -> None:
        self._held: dict[object, tuple[Taken, float, Stuck]] = {}

    def hold(self, taken: Taken, peer: str) -> Callable[[], None]:
        """Hold the bytes of the current call's reply.

        Return a function that gives them back once.
        """
        task = asyncio.current_task()
        assert task is not None, "calls are handled by tasks"
        place = object()
        release = partial(self._release, place)

        def end() -> None:
            task.cancel()
            release()

        self._held[place] = taken, asyncio.get_running_loop().time(), Stuck(peer, end)
        return release

    def _release(self, place: object) -> None:
        held = self._held.pop(place, None)
        if held is not None:
            give_back(held[0])

    def stuck(self, lane: Budget, seconds: float) -> list[Stuck]:
        """Return the calls whose clients have not taken a reply in this lane for `seconds`."""
        now = asyncio.get_running_loop().time()
        return [
            stuck
            for (share, size_bytes), since, stuck in self._held.values()
            if size_bytes > 0 and share.budget is lane and now - since >= seconds
        ]


class Batches:
    """Reads as many consecutive entries as the lane has room for."""

    def __init__(self, storage: EntryStorage, counters: ServiceCounters, turns: Turns) -> None:
        self._storage = storage
        self._counters = counters
        self._turns = turns

    async def in_line(
        self, request: StoredBatchRead, share: Share
    ) -> tuple[Code, list[bytes], Taken]:
        """Wait in line for room. Return the code, the entries and the bytes to give back.

        If the lane is nearly full, fewer entries are returned. The code is BUSY only if, in both
        attempts, the first entry alone was larger than the bytes that were taken for it.
        """
        wanted = request.size_bytes_max + REQUEST_OVERHEAD_BYTES
        least = 0
        for _ in range(ATTEMPTS):
            allowed = max(share.allowance_bytes, ANSWERS_RESERVE_BYTES)
            size_bytes = max(min(wanted, allowed), min(least, share.size_bytes_max))
            await taken_of(share, size_bytes)
            await self._turns.wait_with((share, size_bytes))
            code, entries, taken = await self._read(request, share, size_bytes)
            least = sum(map(len, entries)) + REQUEST_OVERHEAD_BYTES
            if least <= taken[1]:
                return code, entries, taken
            give_back(taken)
            share.refuse()
        return Code.BUSY, [], (share, 0)

    async def at_once(
        self, request: StoredBatchRead, share: Share
    ) -> tuple[Sequence[bytes], Taken]:
        """Return entries if the lane has room for all requested bytes now, otherwise no entries."""
        size_bytes = request.size_bytes_max + REQUEST_OVERHEAD_BYTES
        if not share.take(size_bytes):
            return (), (share, 0)
        code, entries, taken = await self._read(request, share, size_bytes)
        if code is not Code.OK or sum(map(len, entries)) > request.size_bytes_max:
            give_back(taken)
            return (), (share, 0)
        return entries, taken

    async def _read(
        self, request: StoredBatchRead, share: Share, size_bytes: int
    ) -> tuple[Code, list[bytes], Taken]:
        """Return entries from storage, and the bytes that are taken for the entries.

        The caller has taken `size_bytes`. If the entries need more bytes but there is no room, only
        `size_bytes` stay taken.
        """
        counters = self._counters
        counters.read_requests += 1
        answered: asyncio.Future[tuple[Code, Sequence[bytes]]] = (
            asyncio.get_running_loop().create_future()
        )

        def answer(code: Code, entries: Sequence[bytes]) -> None:
            if answered.done():
                # The call ended before the read ended. The read needed the bytes until now.
                share.give_back(size_bytes)
            else:
                answered.set_result((code, entries))

        allowed = replace(
            request, size_bytes_max=min(request.size_bytes_max, size_bytes - REQUEST_OVERHEAD_BYTES)
        )
        self._storage.read_batch(allowed, answer)
        try:
            code, found = await answered
        except asyncio.CancelledError:
            if not answered.cancelled():
                share.give_back(size_bytes)
            raise
        entries = list(map(bytes, found))
        read_bytes = sum(map(len, entries))
        needed = read_bytes + REQUEST_OVERHEAD_BYTES
        if needed > size_bytes and not share.extend(needed - size_bytes):
            return code, entries, (share, size_bytes)
        if needed < size_bytes:
            share.give_back(size_bytes - needed)
        counters.read_entries += len(entries)
        counters.read_bytes += read_bytes
        return code, entries, (share, needed)


class Listings:
    """Lists the entries of ledgers.

    At most LISTINGS_MAX lists are built at a time, each in several turns of the event loop.
    """

    def __init__(self, storage: BookieStorage, size_bytes_max: int) -> None:
        self._storage = storage
        self._size_bytes_max = size_bytes_max
        self._places = asyncio.Semaphore(LISTINGS_MAX)

    async def in_line(self, ledger_id: int, share: Share) -> tuple[pb.ListEntriesReply, Taken]:
        """Wait for room, and return a reply without its code, and the bytes to give back.

        If the reply would not fit into a message or the lane, raise TooManyRangesError, and do not
        build the reply.
        """
        count_max = share.size_bytes_max // RANGE_COST_BYTES
        async with self._places:
            held = await self._storage.entries_held(ledger_id, count_max)
            if len(held) * range_size_bytes(held.last_id) > self._size_bytes_max:
                raise TooManyRangesError(
                    f"the entries of ledger {ledger_id} on this bookie form {len(held)} ranges, "
                    f"too many for a reply of at most {self._size_bytes_max} bytes: read the "
                    "entries instead",
                    path=".",
                    ledger_id=ledger_id,
                    count_max=self._size_bytes_max // range_size_bytes(held.last_id),
                )
            size_bytes = len(held) * RANGE_COST_BYTES
            await taken_of(share, size_bytes)
            try:
                reply = await _reply_of(held)
            except BaseException:
                share.give_back(size_bytes)
                raise
        return reply, (share, size_bytes)


async def _reply_of(held: Spans) -> pb.ListEntriesReply:
    reply = pb.ListEntriesReply()
    add = reply.ranges.add
    spans = iter(held)
    while part := list(islice(spans, slices.UNITS_PER_TURN)):
        for first, last in part:
            add(first_entry_id=first, last_entry_id=last)
        await asyncio.sleep(0)
    return reply


def range_size_bytes(last_id: int) -> int:
    """Return the maximum number of bytes that a range up to `last_id` takes in a message."""
    number_size_bytes = max(last_id.bit_length() + 6, 7) // 7
    return 2 + 2 * (1 + number_size_bytes)
