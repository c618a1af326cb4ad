"""All read-ahead of a task stays within 64 MiB, for entries of any size."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import CommittedEntries
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, Code
from ledgerlog_spark.protocol.ledger.read_room import ROOM_SIZE_BYTES_MAX
from tests.fixtures.client_world import ClientWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.client.client import LedgerClient

ENTRY = bytes(5_000_000)
RANGE = ScanRange("a", 0, 0, 15, 16, 16 * len(ENTRY), 0, 0, 0, 16, ())


class CountedTransport:
    """Counts the requested and the received bytes, and passes everything on.

    Attributes:
        taken: Payload that the consumer has used; the test counts it.
        most: Maximum of the bytes that arrived unused or may still arrive.
    """

    def __init__(self, inner: Any) -> None:
        self.came = self.taken = self.out = self.most = 0
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        answer = self._counted(on_reply, lambda stored: len(stored or b""))
        self._inner.read(bookie_id, request, timeout_ms, answer)

    def read_batch(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        answer = self._counted(on_reply, lambda stored: sum(map(len, stored)))
        self._inner.read_batch(bookie_id, request, timeout_ms, answer)

    def _counted(self, on_reply: Any, size_of: Callable[[Any], int]) -> Any:
        self.out += 1
        self._look()

        def reply(code: Any, stored: Any) -> None:
            self.out -= 1
            self.came += size_of(stored)
            on_reply(code, stored)

        return reply

    def _look(self) -> None:
        held = self.came - self.taken + self.out * FRAME_SIZE_BYTES_MAX
        self.most = max(self.most, held)


class Cluster:
    """One bookie of 5 MB entries, read by a blocking client whose transport counts."""

    def __init__(self) -> None:
        self.counted: CountedTransport
        self.world: ClientWorld
        self.client = BlockingClient(self._connect)
        self.logs = BlockingLogs(self.client)

    async def _connect(self) -> LedgerClient:
        self.world = await ClientWorld(3).__aenter__()
        client, stores = self.world.client_and_stores()
        self.counted = CountedTransport(self.world.transport)
        client.services.transport = self.counted
        client.services.logs = stores.logs
        return client

    def close(self) -> None:
        async def closed(_: LedgerClient) -> None:
            await self.world.__aexit__()

        self.client.run(closed)
        self.client.close()

    def written(self, entries: int, *, fragments: int = 1) -> int:
        """A closed ledger. Every entry is on one bookie. Each fragment has another bookie."""

        async def work(client: LedgerClient) -> int:
            ledger = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            for number in range(entries):
                if number and number % (entries // fragments) == 0:
                    (first,) = ledger.metadata.last_fragment.ensemble
                    self.world.transport.refusing[first] = Code.UNAVAILABLE
                await ledger.append(ENTRY)
            self.world.transport.refusing.clear()
            closed = await ledger.close()
            assert len(closed.fragments) == fragments
            return ledger.id

        return self.client.run(work)

    def settle(self) -> None:
        """Run until every request is answered."""

        async def settled(_: LedgerClient) -> None:
            idle = 0
            while idle < 20:
                await asyncio.sleep(0)
                idle = 0 if self.counted.out else idle + 1

        self.client.run(settled)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def taken_slowly(cluster: Cluster, ranges: list[ScanRange]) -> int:
    """The number of entries of a consumer that lets the readers read ahead before each entry."""
    count = 0
    with CommittedEntries(cluster.logs, ScanTask(tuple(ranges), {"a": "id-a"}, {}), b"") as entries:
        for scanned in ranges:
            for entry in entries(scanned):
                cluster.settle()
                cluster.counted.taken += len(entry.payload)
                count += 1
    return count


def test_two_ledgers_of_large_entries_are_read_ahead_within_one_bound(cluster: Cluster) -> None:
    ranges = [replace(RANGE, ledger_id=cluster.written(16)) for _ in range(2)]
    assert taken_slowly(cluster, ranges) == 32
    assert 2 * FRAME_SIZE_BYTES_MAX < cluster.counted.most <= ROOM_SIZE_BYTES_MAX


def test_ranges_on_both_sides_of_a_change_of_bookies_share_one_bound(cluster: Cluster) -> None:
    ledger_id = cluster.written(32, fragments=2)
    places = [(0, 15), (16, 31)]
    ranges = [
        replace(RANGE, ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)
        for first, last in places
    ]
    assert taken_slowly(cluster, ranges) == 32
    assert 2 * FRAME_SIZE_BYTES_MAX < cluster.counted.most <= ROOM_SIZE_BYTES_MAX


def test_ranges_that_are_larger_than_listed_share_the_bound_all_the_same(cluster: Cluster) -> None:
    ledger_id = cluster.written(32)
    places = [(0, 15), *((n, n + 1) for n in range(16, 32, 2))]
    ranges = [
        replace(RANGE, ledger_id=ledger_id, first_entry_id=first, last_entry_id=last, size_bytes=2)
        for first, last in places
    ]
    assert taken_slowly(cluster, ranges) == 32
    assert 2 * FRAME_SIZE_BYTES_MAX < cluster.counted.most <= ROOM_SIZE_BYTES_MAX


def test_large_entries_that_are_begun_at_once_and_not_taken_share_one_bound(
    cluster: Cluster,
) -> None:
    """Like the indexes of ranges, 32 at the same time."""
    ledger_id = cluster.written(16)
    log = cluster.logs.open_by_id("a", "id-a")
    readers = log.begin_ranges([(ledger_id, n, n) for n in range(16)])
    cluster.settle()
    assert 2 * FRAME_SIZE_BYTES_MAX < cluster.counted.came <= ROOM_SIZE_BYTES_MAX
    for reader in readers:
        (batch,) = reader
        cluster.counted.taken += len(batch[0].payload)
        cluster.settle()
    assert cluster.counted.taken == 16 * len(ENTRY)
    assert cluster.counted.most <= ROOM_SIZE_BYTES_MAX
