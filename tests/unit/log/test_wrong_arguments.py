"""Public calls with an argument of a wrong type: they raise our error, and change nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.blocking.leader import BlockingLeader
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs, BlockingRangeWriter
from ledgerlog_spark.log.blocking.records import BlockingRecordLog
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.log.committing.columns import SchemaChange
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from ledgerlog_spark.testing import MemoryCluster, connect_in_memory
from tests.architecture.test_help import HANDLES
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, write

OBJECTS = (Log, Logs, Leader, RangeWriter, LogClient, WriteHandle, ReadHandle, RecordLog)
BLOCKING = (
    BlockingLog, BlockingLogs, BlockingLeader, BlockingRangeWriter, BlockingLogClient,
    BlockingWriteHandle, BlockingReadHandle, BlockingRecordLog,
)  # fmt: skip
NOT_CALLED = {
    "BlockingRangeReader": "its calls take nothing",
    "MemoryCluster": "a fake, whose arguments are ids of bookies",
    "OwnedCluster": "manages processes",
}

INTERNAL = {
    ReadHandle: {"take_rise"},
    WriteHandle: {"member_lost"},
    LedgerClient: {"create_registered_ledger", "check_bookies", "entry_copies"},
}
"""Calls that only other classes of the package use."""


class Wrong:
    """A value that is wrong for every argument."""


WRONG = Wrong()
NEARLY: dict[str, Any] = {"int": "1", "str": 7, "bytes": "text"}
"""Values that are similar to those of a type, by the name of the type."""
ANY = {"bool", "Any"}
"""Annotations of which each value has a meaning."""
CONTAINERS = {"Sequence", "Iterable", "Collection", "Mapping", "Callable"}

UNUSED = {
    (Log, "commit", "timeout_ms", None),
    (BlockingLog, "commit", "timeout_ms", None),
    (Logs, "sweeper", "clock", WRONG),
}
"""Exceptions: None means no limit here, and any object with the methods of a clock is valid."""


def wrong_for(parameter: inspect.Parameter) -> Iterator[Any]:
    """Values that the annotation of a parameter does not allow."""
    annotation = str(parameter.annotation)
    words = set(re.findall(r"\w+", re.sub(r"\[.*\]", "", annotation)))
    if words & ANY:
        return
    yield WRONG
    if "None" not in words:
        yield None
    if not words & CONTAINERS:
        yield from (nearly for word, nearly in NEARLY.items() if words - {"None"} == {word})


def calls_of(kind: type) -> Iterator[tuple[type, str]]:
    internal = {name for each in kind.__mro__ for name in INTERNAL.get(each, ())}
    for name, call in inspect.getmembers(kind, callable):
        if not name.startswith("_") and name not in internal and list(wrong_arguments(kind, name)):
            assert next(iter(inspect.signature(call).parameters)) in {"self", "log"}
            yield kind, name


def wrong_arguments(kind: type, name: str) -> Iterator[tuple[str, Any]]:
    """Each argument of a call, with each of its wrong values."""
    for parameter in list(inspect.signature(getattr(kind, name)).parameters.values())[1:]:
        for wrong in wrong_for(parameter):
            if (kind, name, parameter.name, wrong) not in UNUSED:
                yield parameter.name, wrong


CALLS = [each for kind in OBJECTS for each in calls_of(kind)]
BLOCKING_CALLS = [each for kind in BLOCKING for each in calls_of(kind)]


def by_name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def test_every_handle_of_users_is_called() -> None:
    classes = {each.__name__ for each in (*OBJECTS, *BLOCKING)}
    assert classes | NOT_CALLED.keys() == HANDLES
    assert min(len(CALLS), len(BLOCKING_CALLS)) > 40
    names = {f"{kind.__name__}.{name}" for kind, name in (*CALLS, *BLOCKING_CALLS)}
    assert {"WriteHandle.append_batch", "ReadHandle.read", "BlockingReadHandle.read"} <= names


class World:
    """One object of each class, and a valid value of each argument without a default."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.objects: dict[type, Any] = {}
        self.values: dict[str, Any] = {}

    async def prepare(self) -> None:
        client = self._cluster.client()
        logs = client.logs
        log = await logs.create("flights")
        await commit(log, "x")
        job = await log.begin(schema=SCHEMA)
        staged = await write(log, job, "y")
        records = await logs.create("records", kind=LogKind.LEADER, content=LogContent.RECORDS)
        writer = await client.create_ledger()
        await writer.append(b"entry")
        self.objects = {
            Log: log,
            Logs: logs,
            Leader: await records.lead(ClientSettings()),
            RangeWriter: await log.open_range(job),
            LogClient: client,
            WriteHandle: writer,
            ReadHandle: await client.open_ledger(staged.ledger_id),
            RecordLog: await client.open_log("records"),
        }
        self.values = values_of(job, staged, (await log.snapshot()).items)

    def stored(self) -> Any:
        """The state of all logs and ledgers in the store."""
        nodes = self._cluster.nodes.current.nodes
        return {path: (node.data, node.version) for path, node in nodes.items()}


def values_of(job: Any, staged: Any, items: Any) -> dict[str, Any]:
    return {
        "job": job,
        "ranges": [staged],
        "replaced": items,
        "staged": staged,
        "ledger_id": staged.ledger_id,
        "ledger_ids": [staged.ledger_id],
        "first_entry_id": 0,
        "last_entry_id": 1,
        "entry_id": 0,
        "name": "flights",
        "log_id": job.log_id,
        "payload": b"row",
        "payloads": [b"row"],
        "record": b"row",
        "records": [b"row"],
        "rows": 1,
        "settings": ClientSettings(),
        "version": 1,
        "timestamp_ms": 1_700_000_000_000,
        "position": 0,
        "count": 1,
        "app": "app",
        "batch_id": 0,
        "schema": SCHEMA,
        "change": lambda _: SchemaChange(SCHEMA),
        "changes": {},
        "on_change": lambda: None,
        "on_closed": lambda: None,
        "work": lambda _: None,
    }


def with_wrong(call: Any, values: dict[str, Any], argument: str, wrong: Any) -> Any:
    """The result of a call in which one argument is wrong."""
    given = {
        p.name: values[p.name]
        for p in inspect.signature(call).parameters.values()
        if p.default is p.empty
    }
    if call.__name__ in {"create", "open_or_create"}:
        given["name"] = "new"
    if call.__name__ == "open_log" and argument in {"schema", "properties"}:
        given |= {"name": "new", "lead": True}
    return call(**{**given, argument: wrong})


async def ended(result: Any) -> None:
    """Wait for the first result of a call."""
    if inspect.isawaitable(result):
        await result
    elif isinstance(result, AsyncIterator):
        await anext(result)


def end(result: Any) -> None:
    """The same for a blocking call."""
    if isinstance(result, Future):
        result.result()
    elif isinstance(result, Iterator):
        next(result)
    elif isinstance(result, list):  # readers of ranges
        next(iter(result[0]))


def assert_clear(error: LedgerLogError) -> None:
    assert (error.definite, error.retriable) == (True, False)


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=by_name)
async def test_a_wrong_argument_is_refused_before_anything_changes(kind: type, name: str) -> None:
    async with MemoryCluster() as cluster:
        world = World(cluster)
        await world.prepare()
        before = world.stored()
        call = getattr(world.objects[kind], name)
        for argument, wrong in wrong_arguments(kind, name):
            with pytest.raises(LedgerLogError) as refused:
                await ended(with_wrong(call, world.values, argument, wrong))
            assert_clear(refused.value)
            assert world.stored() == before, f"{argument}={wrong!r}"
        assert world.objects[WriteHandle].is_writable
        assert await world.objects[RangeWriter].append(b"row", rows=1) is None


@pytest.mark.parametrize("kind", BLOCKING, ids=by_name)
def test_a_wrong_argument_of_a_blocking_call_is_refused(kind: type) -> None:
    with connect_in_memory() as client:
        log = client.logs.create("flights")
        job = log.begin(schema=SCHEMA)
        writer = log.open_range(job)
        writer.append(b"row", rows=1)
        staged = writer.finish()
        assert staged is not None
        log.commit(job, [staged])
        leader = client.open_log("records", lead=True)
        ledger = client.create_ledger()
        ledger.append(b"entry")
        objects: dict[type, Any] = {
            BlockingLog: log,
            BlockingLogs: client.logs,
            BlockingLeader: leader,
            BlockingRangeWriter: log.open_range(log.begin(schema=SCHEMA)),
            BlockingLogClient: client,
            BlockingWriteHandle: ledger,
            BlockingReadHandle: client.open_ledger(ledger.id),
            BlockingRecordLog: client.open_log("records"),
        }
        values = values_of(job, staged, log.snapshot().items)
        before = log.state()
        for _, name in calls_of(kind):
            call = getattr(objects[kind], name)
            other = {"ranges": [(staged.ledger_id, 1, 1)]} if name == "begin_ranges" else {}
            for argument, wrong in wrong_arguments(kind, name):
                with pytest.raises(LedgerLogError) as refused:
                    end(with_wrong(call, values | other, argument, wrong))
                assert_clear(refused.value)
        assert log.state() == before
        assert ledger.append(b"entry") == 1


@pytest.mark.parametrize("ranges", [[7], ["ab"], [(1, 2)], [None]])
def test_what_is_no_range_is_not_read(ranges: Any) -> None:
    with connect_in_memory() as client, pytest.raises(LocalProtocolError, match="each range must"):
        client.logs.create("flights").begin_ranges(ranges)


@pytest.mark.parametrize("slices", [[], [None, None], [7], [object()]])
def test_slices_are_one_source_or_none_for_each_range(slices: Any) -> None:
    with connect_in_memory() as client, pytest.raises(LocalProtocolError, match="slices"):
        client.logs.create("flights").begin_ranges([(1, 1, 1)], slices=slices)


@pytest.mark.parametrize("given", [{"uri": 7}, {"settings": 7}, {"settings": {}}])
async def test_a_client_with_wrong_arguments_is_not_connected(given: dict[str, Any]) -> None:
    with pytest.raises(LedgerLogError):
        ll.connect(**given)
    with pytest.raises(LedgerLogError):
        await ll.aio.connect(**given)


async def test_range_that_is_none_is_refused_with_its_commit(world: LogWorld) -> None:
    """`finish` returns None for a range without rows."""
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    nothing: Any = await (await log.open_range(job)).finish(b"", statistics=b"")
    with pytest.raises(LocalProtocolError, match="ranges must be of type StagedRange, got None"):
        await log.commit(job, [nothing])
    assert (await log.snapshot()).interval.version == 0


async def test_ranges_of_an_iterator_are_committed(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    staged = [await write(log, job, name) for name in "ab"]
    ranges: Any = iter(staged)
    await log.commit(job, ranges)
    assert [item.ledger_id for item in (await log.snapshot()).items] == [
        item.ledger_id for item in staged
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_schema_may_be_of_any_type_of_bytes(
    world: LogWorld, kind: Callable[[bytes], Any]
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=kind(SCHEMA))
    await log.commit(job, [await write(log, job, "x")])
    assert (await log.snapshot()).schemas == {0: SCHEMA}


@pytest.mark.parametrize("name", ["commit", "release", "open_range", "switch"])
def test_blocking_call_without_a_job_raises_the_same_error(name: str) -> None:
    nothing: Any = None
    others: tuple[Any, ...] = {"commit": ([],), "switch": ([], nothing)}.get(name, ())
    with connect_in_memory() as client:
        log = BlockingLogs(client).create("flights")
        with pytest.raises(LocalProtocolError, match="job must be of type Job, got None") as wrong:
            getattr(log, name)(nothing, *others)
    assert (wrong.value.definite, wrong.value.retriable) == (True, False)
