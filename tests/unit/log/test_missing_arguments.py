"""Public calls with None for an argument that must be given: an error, and nothing changes."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from ledgerlog_spark.testing import connect_in_memory
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, write

INTERNAL = {
    ReadHandle: {"take_rise"},
    LedgerClient: {"create_registered_ledger", "check_bookies", "entry_copies"},
}
"""Calls that only other classes of the package make."""

OBJECTS = (Log, Logs, Leader, RangeWriter, LedgerClient, WriteHandle, ReadHandle)


def arguments_of(kind: type) -> list[tuple[str, str]]:
    """The calls of a class, with each argument that may not be None."""
    return [
        (name, parameter.name)
        for name, call in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in INTERNAL.get(kind, ())
        for parameter in list(inspect.signature(call).parameters.values())[1:]
        if "None" not in str(parameter.annotation) and parameter.annotation != "bool"
    ]


UNUSED = {
    (Log, "commit", "timeout_ms"),
    (Log, "retain", "untimed_to"),
    (Log, "view", "seen_offset"),
    (Logs, "create", "schema"),
    (Logs, "open_or_create", "schema"),
    (RangeWriter, "finish", "statistics"),
    (ReadHandle, "follow", "entries_size_bytes_max"),
    (ReadHandle, "watched_entries", "first_entry_id"),
    (ReadHandle, "watched_entries", "last_entry_id"),
}
"""Arguments that these calls do not use here, or of which None means empty or no limit."""

CASES = [
    (kind, *case) for kind in OBJECTS for case in arguments_of(kind) if (kind, *case) not in UNUSED
]


class Everything:
    """One object of each class, and a valid value of each argument without a default."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.client, self.stores = world.client_and_stores()
        self.logs = Logs(store=self.stores.logs, ledgers=self.client)

    async def prepare(self) -> None:
        logs = self.logs
        self.log = await logs.create("flights")
        await commit(self.log, "x")
        job = await self.log.begin(schema=SCHEMA)
        staged = await write(self.log, job, "y")
        records = await logs.create("records", kind=LogKind.LEADER, content=LogContent.RECORDS)
        leader = await records.lead(ClientSettings())
        writer = await self.client.create_ledger(password=b"")
        await writer.append(b"entry")
        reader = await self.client.open_ledger(staged.ledger_id)
        self.objects: dict[type, Any] = {
            Log: self.log,
            Logs: logs,
            Leader: leader,
            RangeWriter: await self.log.open_range(job),
            LedgerClient: self.client,
            WriteHandle: writer,
            ReadHandle: reader,
        }
        items = (await self.log.snapshot()).items
        self.values: dict[str, Any] = {
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
            "log_id": self.log.log_id,
            "payload": b"row",
            "payloads": [b"row"],
            "record": b"row",
            "records": [b"row"],
            "rows": 1,
            "settings": ClientSettings(),
            "version": 1,
            "timestamp_ms": self.world.now_ms,
            "position": 0,
            "count": 1,
            "app": "app",
            "batch_id": 0,
            "schema": SCHEMA,
            "on_change": lambda: None,
            "is_listed": False,
            "statistics": b"",
        }

    async def call(self, kind: type, name: str, argument: str) -> Any:
        call: Callable[..., Any] = getattr(self.objects[kind], name)
        given = {
            p.name: self.values[p.name]
            for p in inspect.signature(call).parameters.values()
            if p.default is p.empty
        }
        if name in {"create", "open_or_create"}:
            given["name"] = "new"
        result = call(**{**given, argument: None})
        if inspect.isawaitable(result):
            return await result
        if isinstance(result, AsyncIterator):
            return [found async for found in result]
        return result

    async def stored(self) -> Any:
        """All that the store has of the logs and ledgers."""
        tree: Any = self.stores.tree
        return {path: (node.data, node.version) for path, node in tree.nodes.current.nodes.items()}


@pytest.mark.parametrize(("kind", "name", "argument"), CASES)
async def test_none_is_refused_before_anything_changes(
    world: LogWorld, kind: type, name: str, argument: str
) -> None:
    everything = Everything(world)
    await everything.prepare()
    before = await everything.stored()
    with pytest.raises((LedgerLogError, TypeError)) as refused:
        await everything.call(kind, name, argument)
    if isinstance(refused.value, LedgerLogError):
        assert (refused.value.definite, refused.value.retriable) == (True, False)
    assert await everything.stored() == before


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
