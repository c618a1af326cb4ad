"""The data source with bookies that are full, silent, slow, or always busy.

Each call ends in bounded time. If too many bookies have a fault, the call raises an error that
names the fault. Otherwise it succeeds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.datasource import cluster
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.reader import BatchReader, RawReader
from ledgerlog_spark.datasource.stream import writer as stream_writer
from ledgerlog_spark.datasource.stream.reader import LedgerStreamReader
from ledgerlog_spark.datasource.stream.writer import RunningBatch, StreamWriter
from ledgerlog_spark.datasource.write.writer import BatchWriter
from ledgerlog_spark.errors import (
    AddTimeoutError,
    EntryUnknownError,
    LedgerLogError,
    NotEnoughBookiesError,
    QuorumError,
)
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.fixtures.blocking_world import URI, BlockingWorld, blocking_world

__all__ = ["blocking_world"]

LOG, LED = "flights", "orders"
ROWS, RECORDS = 3_000, 50
SECONDS_MAX = 150
"""Maximum time by the cluster's clock: `patiently` and one more attempt, or a write's 60 to 120
s."""


def schema(name: str, kind: str) -> str:
    field = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


FLIGHTS = schema("n", "long")
ORDERS = schema("value", "binary")
RAW = schema("entry_id", "long")


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse(given)


def batches() -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"n": pa.array(range(ROWS // 3))})] * 3)


def batch_write(_: BlockingWorld) -> int:
    writer = BatchWriter(URI, options(log=LOG).for_write(), FLIGHTS, overwrite=False)
    writer.commit([writer.write(batches())])
    return ROWS


def stream_write(_: BlockingWorld) -> int:
    writer = StreamWriter(URI, options(log=LOG).for_write(), FLIGHTS, overwrite=False)
    writer.commit([writer.write(batches())], 0)
    return ROWS


def rows_of(reader: Any, partitions: Any) -> int:
    return sum(batch.num_rows for each in partitions for batch in reader.read(each))


def batch_read(_: BlockingWorld) -> int:
    reader = BatchReader(URI, options(log=LOG).for_read(), FLIGHTS)
    return rows_of(reader, reader.partitions())


def leader_read(_: BlockingWorld) -> int:
    reader = BatchReader(URI, options(log=LED).for_read(), ORDERS)
    return rows_of(reader, reader.partitions())


def raw_read(world: BlockingWorld) -> int:
    reader = RawReader(URI, options(ledgerId=str(world.ledger_id)).for_read(), RAW)
    return rows_of(reader, reader.partitions())


def streamed(log: str, columns: str) -> int:
    given = options(log=log, startingOffsets="earliest").for_stream()
    reader = LedgerStreamReader(URI, given, columns)
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return rows_of(reader, reader.partitions(start, end))
    finally:
        reader.stop()


def stream_read(_: BlockingWorld) -> int:
    return streamed(LOG, FLIGHTS)


def leader_stream_read(_: BlockingWorld) -> int:
    return streamed(LED, ORDERS)


READS: dict[Callable[[BlockingWorld], int], int] = {
    batch_read: ROWS,
    leader_read: RECORDS,
    raw_read: RECORDS,
    stream_read: ROWS,
    leader_stream_read: RECORDS,
}
WRITES: dict[Callable[[BlockingWorld], int], int] = {batch_write: ROWS, stream_write: ROWS}


@pytest.fixture
def world(blocking_world: BlockingWorld, monkeypatch: pytest.MonkeyPatch) -> BlockingWorld:
    """A cluster with a log of rows, a leader log that is still led, and a closed ledger."""
    monkeypatch.setattr(stream_writer, "running_batch", lambda: RunningBatch("query", "run", 0))
    batch_write(blocking_world)

    async def lead(client: LedgerClient) -> Any:
        log = await logs_of(client).open_or_create(
            LED, kind=LogKind.LEADER, content=LogContent.RECORDS
        )
        leader = await log.lead(ClientSettings())
        for number in range(RECORDS):
            await leader.append(b"%d" % number)
        await asyncio.sleep(1)  # the last add confirmed is announced
        ledger = await client.create_ledger()
        await ledger.append_batch([b"%d" % number for number in range(RECORDS)])
        await ledger.close()
        blocking_world.ledger_id = ledger.id
        return leader

    blocking_world.leader = blocking_world.client.run(lead)
    return blocking_world


def befall(world: BlockingWorld, fault: str, bookies: int) -> None:
    """Give this number of bookies the fault from now on."""
    transport, names = world.cluster.transport, world.cluster.names[:bookies]
    match fault:
        case "full":
            transport.full |= set(names)
        case "silent":
            transport.silent |= set(names)
        case "slow":
            transport.slow_seconds = dict.fromkeys(names, 4.0)
        case "busy":
            transport.refusing |= dict.fromkeys(names, Code.BUSY)
        case "damaged":
            transport.refusing |= dict.fromkeys(names, Code.IO_ERROR)


SAYS = {"full": "read_only", "silent": "timeout", "busy": "busy", "damaged": "io_error"}
RAISES = (AddTimeoutError, NotEnoughBookiesError, QuorumError, EntryUnknownError)


@pytest.mark.parametrize("fault", ["silent", "busy", "damaged"])
@pytest.mark.parametrize("call", [*READS, *WRITES], ids=lambda call: call.__name__)
def test_a_fault_of_all_bookies_ends_each_call_with_an_error_that_names_it(
    world: BlockingWorld, call: Callable[[BlockingWorld], int], fault: str
) -> None:
    befall(world, fault, 4)
    began = world.now
    with pytest.raises(RAISES) as caught:
        call(world)
    assert SAYS[fault] in str(caught.value), caught.value
    assert world.now - began < SECONDS_MAX


@pytest.mark.parametrize("call", WRITES, ids=lambda call: call.__name__)
def test_full_bookies_end_a_write_with_an_error_that_names_them(
    world: BlockingWorld, call: Callable[[BlockingWorld], int]
) -> None:
    befall(world, "full", 4)
    began = world.now
    with pytest.raises(RAISES) as caught:
        call(world)
    assert "read_only" in str(caught.value), caught.value
    assert world.now - began < SECONDS_MAX
    assert {each(world) for each in READS} == {ROWS, RECORDS}


@pytest.mark.parametrize("fault", ["full", "silent", "slow", "busy", "damaged"])
def test_a_fault_of_one_bookie_ends_no_call(world: BlockingWorld, fault: str) -> None:
    befall(world, fault, 1)
    for call in WRITES:
        began = world.now
        assert call(world) == ROWS
        assert world.now - began < SECONDS_MAX
    for call, rows in READS.items():
        began = world.now
        assert call(world) >= rows, call.__name__
        assert world.now - began < SECONDS_MAX


@pytest.mark.parametrize("call", [*READS, *WRITES], ids=lambda call: call.__name__)
def test_slow_bookies_delay_calls_and_end_none(
    world: BlockingWorld, call: Callable[[BlockingWorld], int]
) -> None:
    befall(world, "slow", 4)
    began = world.now
    assert call(world) == {**READS, **WRITES}[call]
    assert 4 <= world.now - began < SECONDS_MAX


@pytest.mark.parametrize("fault", ["silent", "busy"])
def test_a_fault_that_passes_is_outlived(world: BlockingWorld, fault: str) -> None:
    """Calls of a driver are repeated, and running calls continue after the fault."""

    def pass_by() -> None:
        world.cluster.transport.silent.clear()
        world.cluster.transport.refusing.clear()

    for call in (leader_stream_read, batch_write, stream_read):
        befall(world, fault, 4)
        world.later(6.0, pass_by)
        assert call(world) in {ROWS, RECORDS, 2 * ROWS}


def test_a_task_reads_what_the_driver_saw_confirmed_though_its_bookies_report_less(
    world: BlockingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = world.cluster.transport

    async def written(client: LedgerClient) -> Any:
        ledger = await client.create_ledger()
        await ledger.append_batch([b"%d" % number for number in range(RECORDS)])
        transport.silent |= set(ledger.metadata.last_fragment.ensemble[1:])
        late = ledger.append_async(b"on the first bookie alone, with the news of those before it")
        ledger.send_now()
        late.cancel()
        transport.silent.clear()
        return ledger

    ledger = world.client.run(written)
    reader = RawReader(URI, options(ledgerId=str(ledger.id)).for_read(), RAW)
    partitions = reader.partitions()
    assert partitions[-1].last_entry_id == RECORDS - 1

    async def connected() -> LedgerClient:
        return world.cluster.client_and_stores()[0]

    of_task = BlockingClient(connected)
    monkeypatch.setitem(cluster._clients, URI, of_task)
    transport.silent.add(ledger.metadata.last_fragment.ensemble[0])
    assert of_task.open_ledger(ledger.id).last_add_confirmed < RECORDS - 1
    assert rows_of(reader, partitions) == RECORDS
    of_task.close()


def error_of(call: Callable[[BlockingWorld], int], world: BlockingWorld) -> LedgerLogError | None:
    try:
        call(world)
    except LedgerLogError as error:
        return error
    return None


def test_no_error_is_one_of_ours_under_a_storm_of_faults(world: BlockingWorld) -> None:
    """Each call has faults of other bookies. Errors name the reason, and the last calls succeed."""
    faults = ["busy", "silent", "damaged", "full", "slow"]
    transport = world.cluster.transport
    for number, fault in enumerate(faults * 2):
        befall(world, fault, 1 + number % 4)
        for call in [*READS, *WRITES]:
            error = error_of(call, world)
            assert error is None or isinstance(error, RAISES), error
        transport.silent.clear()
        transport.refusing.clear()
        transport.full.clear()
        transport.slow_seconds.clear()
    for call, rows in {**READS, **WRITES}.items():
        assert call(world) >= rows
