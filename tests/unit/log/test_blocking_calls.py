"""Each handwritten blocking call has the same result and effect as its coroutine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.client.blocking import client as blocking_client
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.reading.row_cursor import RowBatch
from ledgerlog_spark.log.records import Positions, Record
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.ledger.messages import StoredEntry
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.testing import connect_in_memory
from tests.architecture.test_blocking_twins import TWINS, handwritten

Pairs = Iterator[tuple[Any, Any]]
"""The results of blocking calls, each with the result of the coroutine."""

Compare = Callable[[BlockingLogClient, str], Pairs]
"""Makes both calls. The arguments are the client and the name of the call."""

PAYLOADS = [b"zero", b"one", b"two", b"three", b"four"]
SINGLE = [*PAYLOADS, b"", "text", None]
MANY = [PAYLOADS[:1], PAYLOADS, [], [b"", "text"]]
"""Arguments of appends. The last ones are refused."""

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = [pa.table([ids], schema=SCHEMA) for ids in ([1], [2, 3], [])]
LOGS = ("orders", "table")
RANGES: list[tuple[int, ...]] = [(), (2,), (1, 3), (4, 4), (3, 1), (0, 99), (-1,)]
"""Arguments of reads. Some are refused."""

OPTIONS: list[dict[str, Any]] = [
    {},
    {"lead": True},
    {"lead": True, "create_if_missing": False},
    {"lead": True, "properties": {"rollBytes": "1048576"}},
    {"lead": True, "schema": SCHEMA},
    {"properties": {}},
    {"schema": SCHEMA},
]
"""Of `open_log`. Some are refused, depending on the log."""

_compared: dict[str, Compare] = {}


def compares(*names: str) -> Callable[[Compare], Compare]:
    """Register a comparison for these blocking calls."""

    def registered(compare: Compare) -> Compare:
        _compared.update(dict.fromkeys(names, compare))
        return compare

    return registered


@pytest.fixture
def client() -> Iterator[BlockingLogClient]:
    """A client of a cluster with closed ledgers, `orders` (records) and `table` (rows)."""
    settings = ClientSettings(reader=ReaderSettings(batch_entries_max=2))
    with connect_in_memory(settings=settings) as connected:
        connected.run(_filled)
        yield connected


async def _filled(client: Any) -> None:
    for _ in range(3):
        ledger = await client.create_ledger()
        await ledger.append_batch(PAYLOADS)
        await ledger.close()
    records = await client.open_log("orders", lead=True)
    for payload in PAYLOADS:
        await records.append(payload)
    await records.close()
    table = await client.open_log("table", lead=True, schema=SCHEMA)
    for number in range(len(PAYLOADS)):
        await table.append_rows(pa.table([[number]], schema=SCHEMA))
    await table.close()


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result, or what identifies the error."""
    try:
        return call(*arguments, **options)
    except LedgerLogError as error:
        return type(error), error.message


def awaited(
    client: BlockingLogClient, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """The outcome of a coroutine."""
    return outcome(client.run, lambda _: call(*arguments, **options))


def inner(client: BlockingLogClient) -> Any:
    """The client with the coroutines."""

    async def itself(client: LedgerClient) -> LedgerClient:
        return client

    return client.run(itself)


def flat(items: Iterable[Any]) -> list[Any]:
    """The items of batches, because the cuts between batches depend on the arrival of answers."""
    singles = (int, StoredEntry, Record, RowBatch)
    return [one for each in items for one in ([each] if isinstance(each, singles) else each)]


async def collected(items: Any, count: int | None = None) -> list[Any]:
    """All items; with `count`, at least this number, because a tail has no end."""
    found: list[Any] = []
    async with aclosing(items):
        async for item in items:
            found += flat([item])
            if count is not None and len(found) >= count:
                break
    return found


def taken(items: Any, count: int | None = None) -> list[Any]:
    """`collected` of a blocking iterator."""
    found: list[Any] = []
    for item in items:
        found += flat([item])
        if count is not None and len(found) >= count:
            items.close()
            break
    return found


@compares("BlockingClient.list_ledgers", "BlockingLogClient.list_ledgers")
def _list_ledgers(client: BlockingLogClient, _: str) -> Pairs:
    ids = awaited(client, collected, inner(client).list_ledgers())
    assert len(ids) >= 3
    for size in (1, 2, 3, len(ids), len(ids) + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocking_client, "BATCH_OF_IDS", size)
            yield list(client.list_ledgers()), ids


@compares("BlockingClient.close", "BlockingLogClient.close")
def _close(client: BlockingLogClient, _: str) -> Pairs:
    with connect_in_memory() as other:
        ours, theirs = inner(client), inner(other)
        yield outcome(client.close), awaited(other, theirs.aclose)
        yield outcome(ours.check_open), outcome(theirs.check_open)


@compares("BlockingLogClient.logs")
def _logs(client: BlockingLogClient, _: str) -> Pairs:
    yield client.logs.names(), awaited(client, inner(client).logs.names)


@compares("BlockingLogClient.open_log")
def _open_log(client: BlockingLogClient, _: str) -> Pairs:
    def shown(log: Any) -> str:
        kind = type(log).__name__.removeprefix("Blocking")
        own = ("kind", "content") if kind == "RecordLog" else ("end_offset", "is_leading")
        return f"{kind} {[getattr(log, name) for name in ('name', 'log_id', 'schema', *own)]}"

    def blocked(name: str, options: dict[str, Any]) -> str:
        open_log: Any = client.open_log
        return shown(open_log(name, **options))

    async def waited(name: str, options: dict[str, Any]) -> str:
        return shown(await inner_client.open_log(name, **options))

    async def head_of(name: str) -> str:
        head = (await (await inner_client.logs.open(name)).state()).head
        return f"{head.kind} {head.content} {head.end_offset} {head.properties}"

    def plain(result: Any, name: str) -> str:
        """The value without the parts that differ between two new logs."""
        is_old = name in LOGS
        return str(result) if is_old else re.sub(r"\b[0-9a-f]{32}\b|" + name, "", str(result))

    inner_client = inner(client)
    for number, options in enumerate(OPTIONS):
        names = [(f"blocking-{number}", f"coroutine-{number}"), *zip(LOGS, LOGS, strict=True)]
        for ours, theirs in names:
            got, twin = outcome(blocked, ours, options), awaited(client, waited, theirs, options)
            yield plain(got, ours), plain(twin, theirs)
            stored = awaited(client, head_of, ours), awaited(client, head_of, theirs)
            yield plain(stored[0], ours), plain(stored[1], theirs)


@compares(
    "BlockingWriteHandle.append",
    "BlockingWriteHandle.append_async",
    "BlockingWriteHandle.append_batch",
    "BlockingWriteHandle.append_batch_async",
)
def _append_to_a_ledger(client: BlockingLogClient, call: str) -> Pairs:
    ours, theirs = client.create_ledger(), awaited(client, inner(client).create_ledger)
    yield from _appended(client, ours, theirs, call, MANY if "batch" in call else SINGLE)
    ours.close()
    awaited(client, theirs.close)
    mine, its = (client.open_ledger(each.id).read() for each in (ours, theirs))
    yield [entry.payload for entry in mine], [entry.payload for entry in its]


@compares(
    "BlockingLeader.append",
    "BlockingLeader.append_async",
    "BlockingLeader.append_many",
    "BlockingLeader.append_many_async",
    "BlockingLeader.append_rows",
    "BlockingLeader.append_rows_async",
)
def _append_to_a_log(client: BlockingLogClient, call: str) -> Pairs:
    def stored(name: str) -> list[Any]:
        log = client.open_log(name)
        found: Iterable[Any] = log.read() if schema is None else log.read_rows()
        return [(each.offset, each.entry_id, each[1]) for each in found]

    is_of_rows = "rows" in call
    schema = SCHEMA if is_of_rows else None
    ours = client.open_log("ours", lead=True, schema=schema)
    theirs = awaited(client, inner(client).open_log, "theirs", lead=True, schema=schema)
    values = ROWS if is_of_rows else MANY if "many" in call else SINGLE
    yield from _appended(client, ours, theirs, call, values)
    ours.close()
    awaited(client, theirs.close)
    yield stored("ours"), stored("theirs")


def _appended(
    client: BlockingLogClient, ours: Any, theirs: Any, call: str, values: Sequence[Any]
) -> Pairs:
    """Append each value with both calls, and compare the ids or the positions."""

    def shown(result: Any) -> Any:
        if isinstance(result, Position):
            return result.offset, result.entry_id
        return [shown(each) for each in result] if isinstance(result, Positions) else result

    def blocked(value: Any) -> Any:
        result = getattr(ours, call)(value)
        return shown(result.result() if call.endswith("_async") else result)

    async def waited(value: Any) -> Any:
        return shown(await getattr(theirs, call)(value))

    for value in values:
        got, twin = outcome(blocked, value), awaited(client, waited, value)
        yield str(got).replace("ours", "LOG"), str(twin).replace("theirs", "LOG")


@compares("BlockingReadHandle.read", "BlockingReadHandle.read_batches")
def _read_a_ledger(client: BlockingLogClient, call: str) -> Pairs:
    ours, theirs = _readers(client)
    calls: list[tuple[tuple[int, ...], dict[str, Any]]] = [(each, {}) for each in RANGES]
    if call == "read_batches":
        calls += [((3, 99), {"is_listed": True}), ((1, 3), {"is_listed": True})]
    for entries, options in calls:
        yield _both_taken(client, getattr(ours, call), getattr(theirs, call), entries, **options)


@compares("BlockingReadHandle.close")
def _close_a_reader(client: BlockingLogClient, _: str) -> Pairs:
    ours, theirs = _readers(client)
    yield outcome(ours.close), awaited(client, theirs.aclose)
    yield outcome(ours.read_entry, 0), awaited(client, theirs.read_entry, 0)


def _readers(client: BlockingLogClient) -> tuple[Any, Any]:
    """A closed ledger, opened with both calls."""
    ledger_id = next(iter(client.list_ledgers()))
    return client.open_ledger(ledger_id), awaited(client, inner(client).open_ledger, ledger_id)


@compares(
    "BlockingRecordLog.read",
    "BlockingRecordLog.read_batches",
    "BlockingRecordLog.read_rows",
    "BlockingRecordLog.tail",
    "BlockingRecordLog.tail_batches",
    "BlockingRecordLog.tail_rows",
)
def _read_a_log(client: BlockingLogClient, call: str) -> Pairs:
    is_tail = "tail" in call
    for name in LOGS:
        ours, theirs = client.open_log(name), awaited(client, inner(client).open_log, name)
        for each in [(0,), (2,), (-1,)] if is_tail else RANGES:
            count = len(PAYLOADS) - each[0] if is_tail else None
            yield _both_taken(client, getattr(ours, call), getattr(theirs, call), each, count=count)

    if is_tail:
        yield from _tailed(client, call)


def _tailed(client: BlockingLogClient, call: str) -> Pairs:
    """Tail an existing record, then one that is appended while both tails are open."""
    name = "table" if "rows" in call else "orders"
    ours = getattr(client.open_log(name), call)(len(PAYLOADS) - 1)
    theirs = getattr(awaited(client, inner(client).open_log, name), call)(len(PAYLOADS) - 1)

    async def following() -> Any:
        return await anext(theirs)

    yield next(ours), awaited(client, following)
    with client.open_log(name, lead=True) as leader:
        if "rows" in call:
            leader.append_rows(ROWS[0])
        else:
            leader.append(b"later")
        yield next(ours), awaited(client, following)
    ours.close()
    awaited(client, theirs.aclose)


@compares("BlockingLogs.open_by_id")
def _open_by_id(client: BlockingLogClient, _: str) -> Pairs:
    log_id = client.logs.open("orders").log_id
    ours = client.logs.open_by_id("orders", log_id)
    theirs = inner(client).logs.open_by_id("orders", log_id)
    yield (ours.name, ours.log_id), (theirs.name, theirs.log_id)
    yield outcome(ours.state), awaited(client, theirs.state)


@compares("BlockingLog.read_range")
def _read_a_range(client: BlockingLogClient, _: str) -> Pairs:
    ours, theirs = client.logs.open("orders"), awaited(client, inner(client).logs.open, "orders")
    (item,) = ours.snapshot().items
    for password in (b"", b"wrong"):
        for each in ((0, 4), (1, 3), (2, 2)):
            place = (item.ledger_id, *each)
            yield _both_taken(client, ours.read_range, theirs.read_range, place, password=password)


def _both_taken(
    client: BlockingLogClient,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    arguments: tuple[int, ...],
    count: int | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The items of both iterators, or the errors."""

    async def waited() -> list[Any]:
        return await collected(theirs(*arguments, **options), count)

    return outcome(lambda: taken(ours(*arguments, **options), count)), awaited(client, waited)


def test_every_handwritten_call_is_compared() -> None:
    names = {name for ours, theirs in TWINS.items() for name in handwritten(ours, theirs)}
    assert names == set(_compared)


@pytest.mark.parametrize("name", sorted(_compared))
def test_blocking_call_and_coroutine_do_the_same(client: BlockingLogClient, name: str) -> None:
    pairs = list(_compared[name](client, name.partition(".")[2]))
    assert pairs
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
