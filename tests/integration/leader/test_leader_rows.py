"""Leader logs of rows on real bookies and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import (
    ConfigurationError,
    LeaderDeposedError,
    LocalProtocolError,
    LogKindError,
    LogNotFoundError,
    PositionNotAvailableError,
    SchemaMismatchError,
)
from ledgerlog_spark.local.cluster import Cluster
from tests.integration.leader.conftest import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ledgerlog_spark.log.clients import BlockingLogClient

    Connect = Callable[[], BlockingLogClient]

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of four bookies for all tests. Each test has its own log."""
    running = Cluster(tmp_path_factory.mktemp("rows") / "cluster")
    running.up(4, upkeep=False)
    yield running
    running.down()


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Connect a new client at each call. All of them are closed at the end."""
    settings = ll.ClientSettings(add_timeout_ms=2_000)
    with contextlib.ExitStack() as clients:
        yield lambda: clients.enter_context(
            ll.connect(cluster.metadata_service_uri, settings=settings)
        )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's own log."""
    return str(request.node.name)


def table(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table([pa.array(numbers, pa.int64()), [f"row {n}" for n in numbers]], schema=SCHEMA)


def rows_in(batches: Iterable[ll.RowBatch]) -> pa.Table:
    """Read all rows, and check that each batch follows the one before."""
    found = list(batches)
    for one, two in pairwise(found):
        assert one.end_offset == two.offset
    return pa.Table.from_batches([one.rows for one in found], SCHEMA)


def test_rows_survive_rolls_a_new_leader_and_truncation(connect: Connect, name: str) -> None:
    client = connect()
    with client.open_log(name, lead=True, schema=SCHEMA) as log:
        assert log.append_rows(table(0, 1)).offsets == range(1)
        many = log.append_rows(table(1, 200_000))
        assert many.offsets == range(1, 200_000)
        log.roll()
        assert log.append_rows(table(200_000, 200_100).to_batches()[0])[99].offset == 200_099
        assert log.close() == 200_100
    with client.open_log(name, lead=True) as log:  # of the schema that the log has
        assert log.schema == SCHEMA
        log.append_rows(table(200_100, 200_200))
        log.truncate(many[499])
    reader = connect().open_log(name)
    assert reader.schema == SCHEMA
    assert rows_in(reader.read_rows()).equals(table(500, 200_200))
    assert rows_in(reader.read_rows(many[999], 65_540)).equals(table(1_000, 65_540))
    assert next(reader.read_rows(many[999])).position == many[999]
    with pytest.raises(PositionNotAvailableError, match="oldest position is 500"):
        next(reader.read_rows(0))


def test_acknowledged_rows_of_a_deposed_leader_are_kept_and_it_is_told_what_is_safe(
    connect: Connect, name: str
) -> None:
    old = connect().open_log(name, lead=True, schema=SCHEMA)
    old.append_rows(table(0, 100))
    new = connect().open_log(name, lead=True, schema=SCHEMA)
    with pytest.raises(LeaderDeposedError) as caught:
        old.append_rows(table(100, 200))
    assert caught.value.end_offset == 100
    with pytest.raises(LeaderDeposedError) as caught:
        old.append_rows(table(100, 200))
    assert caught.value.definite
    assert new.append_rows(table(100, 110)).offsets == range(100, 110)
    new.close()
    assert rows_in(connect().open_log(name).read_rows()).equals(table(0, 110))


def test_appends_of_many_threads_are_each_whole_and_at_their_own_offsets(
    connect: Connect, name: str
) -> None:
    sizes = random.Random(7).choices([1, 20, 3_000, 70_000], weights=[8, 8, 3, 1], k=200)
    client = connect()
    log = client.open_log(name, lead=True, schema=SCHEMA)
    appended: dict[int, list[tuple[int, range]]] = {}

    def append(thread: int) -> None:
        futures = [
            (begin, log.append_rows_async(table(begin, begin + size)))
            for begin, size in enumerate(sizes[thread::4])
        ]
        appended[thread] = [(begin, future.result().offsets) for begin, future in futures]

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.close() == sum(sizes)
    column = rows_in(client.open_log(name).read_rows())["n"]
    every = [one for some in appended.values() for one in some]
    covered = sorted((offsets.start, offsets.stop) for _, offsets in every)
    assert [stop for _, stop in covered] == [start for start, _ in covered[1:]] + [sum(sizes)]
    for begin, offsets in every:
        expected = pa.chunked_array([pa.array(range(begin, begin + len(offsets)))])
        assert column.slice(offsets.start, len(offsets)).equals(expected)


def test_opening_says_what_is_wrong_and_makes_nothing(connect: Connect, name: str) -> None:
    client = connect()
    with pytest.raises(ConfigurationError, match=r"pyarrow\.Schema, not str"):
        client.open_log(name, lead=True, schema="n long")
    with pytest.raises(SchemaMismatchError, match="uint8"):
        client.open_log(name, lead=True, schema=pa.schema([("n", pa.uint8())]))
    with pytest.raises(LocalProtocolError, match="lead=True"):
        client.open_log(name, schema=SCHEMA)  # type: ignore[call-overload]  # as users may
    with pytest.raises(LogNotFoundError):
        client.open_log(name, lead=True, schema=SCHEMA, create_if_missing=False)
    assert name not in client.logs.names()
    client.logs.create("of-spark")
    with pytest.raises(LogKindError, match="transactional"):
        client.open_log("of-spark", lead=True, schema=SCHEMA)
    with client.open_log("of-records", lead=True) as records:
        with pytest.raises(LogKindError, match="of records"):
            client.open_log("of-records", lead=True, schema=SCHEMA)
        with pytest.raises(LogKindError, match="append bytes"):
            records.append_rows(table(0, 1))
        records.append(b"still the leader")
    with client.open_log(name, lead=True, schema=SCHEMA) as log:
        with pytest.raises(LogKindError, match="append_rows"):
            log.append_async(b"record")
        with pytest.raises(SchemaMismatchError, match="'other'"):
            log.append_rows(pa.table({"other": [1]}))
        assert log.append_rows(table(0, 0)).offsets == range(0)


async def test_the_asyncio_face_does_the_same(cluster: Cluster, name: str) -> None:
    async with await ll.aio.connect(cluster.metadata_service_uri) as client:
        log = await client.open_log(name, lead=True, schema=SCHEMA)
        positions = await asyncio.gather(*(log.append_rows(table(n, n + 1)) for n in range(50)))
        assert [of_one.offsets for of_one in positions] == [range(n, n + 1) for n in range(50)]
        tail = (await client.open_log(name)).tail_rows(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = [await anext(tail)]
            while found[-1].end_offset < 50:
                found.append(await anext(tail))
            last = asyncio.ensure_future(anext(tail))
            await log.append_rows(table(50, 51))
            found.append(await last)
        assert rows_in(found).equals(table(0, 51))
        await tail.aclose()
        assert await log.close() == 51


def test_tail_has_each_row_once_also_while_a_bookie_dies(
    cluster: Cluster, connect: Connect, name: str
) -> None:
    client = connect()
    log = client.open_log(name, lead=True, schema=SCHEMA)
    tail = connect().open_log(name).tail_rows(5)
    first = log.append_rows(table(0, 10))
    found = [next(tail)]
    assert found[0].offset == 5
    killed = client.ledger_metadata(first[0].ledger_id).last_fragment.ensemble[0]
    cluster.kill(killed)
    for begin in range(10, 300_010, 100_000):
        log.append_rows(table(begin, begin + 100_000))
        while found[-1].end_offset < begin + 100_000:
            found.append(next(tail))
    log.roll()
    log.append_rows(table(300_010, 300_011))
    found.append(next(tail))
    assert rows_in(found).equals(table(5, 300_011))
    log.close()
    cluster.start(killed)
