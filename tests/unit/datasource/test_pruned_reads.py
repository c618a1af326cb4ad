"""A scan of few columns reads their slices, and has the rows of a scan of whole entries."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from struct import pack
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.column_slices import SLICED_SIZE_BYTES_MIN
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan import slice_choice
from ledgerlog_spark.datasource.scan.ranges import RangeIndex
from ledgerlog_spark.datasource.scan.reader import BatchReader
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.datasource.stream.reader import LedgerStreamReader
from ledgerlog_spark.datasource.write.writer import BatchWriter
from ledgerlog_spark.model import Code
from tests.fixtures.blocking_world import URI, BlockingWorld, blocking_world

__all__ = ["blocking_world"]

LOG = "wide"
NUMBERS = [f"c{number}" for number in range(18)]
ROWS = 6_000
TYPES = {
    **dict.fromkeys(NUMBERS, "long"),
    "text": "string",
    "list": {"type": "array", "elementType": "string", "containsNull": True},
}
RANDOM = random.Random(5)


def schema_of(*names: str) -> str:
    kinds = {**TYPES, **METADATA_COLUMNS}
    fields = [
        {"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in names
    ]
    return json.dumps({"type": "struct", "fields": fields})


def rows(first: int, count: int) -> pa.RecordBatch:
    def number(place: int) -> int | None:
        return None if place % 11 == 0 else RANDOM.getrandbits(62)

    columns: dict[str, Any] = {
        name: pa.array([number(row + place) for row in range(count)], pa.int64())
        for place, name in enumerate(NUMBERS)
    }
    columns["c0"] = pa.array(range(first, first + count), pa.int64())
    columns["text"] = pa.array([f"row {row}" * (row % 4) for row in range(count)])
    columns["list"] = pa.array([[str(row)] * (row % 3) for row in range(count)])
    return pa.record_batch(columns)


BATCHES = [rows(first, 1_000) for first in range(0, ROWS, 1_000)]
WHOLE = pa.Table.from_batches(BATCHES)


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"log": LOG, **given})


def write(*batches: pa.RecordBatch, **given: str) -> None:
    chosen = options(**{"targetEntryBytes": "50000", **given}).for_write()
    writer = BatchWriter(URI, chosen, schema_of(*TYPES), overwrite=False)
    writer.commit([writer.write(iter(batches))])


def read(*names: str, **given: str) -> pa.Table:
    reader = BatchReader(URI, options(**given).for_read(), schema_of(*names))
    return table_of(batch for each in reader.partitions() for batch in reader.read(each))


def table_of(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).combine_chunks()


def asked(world: BlockingWorld) -> Counter[str]:
    """The requests since the last call, by kind."""
    counted = Counter(kind for kind, _ in world.cluster.transport.asked)
    world.cluster.transport.asked.clear()
    return counted


@pytest.fixture(params=["none", "lz4", "zstd"])
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(blocking_world: BlockingWorld) -> BlockingWorld:
    write(*BATCHES, compression="none")
    asked(blocking_world)
    return blocking_world


NAMES = [["c7"], ["c0", "text"], ["list"], ["text", "list", "c17"], [*NUMBERS[::2]]]


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_few_columns_come_in_slices(
    blocking_world: BlockingWorld, compression: str, names: list[str]
) -> None:
    write(*BATCHES, compression=compression)
    asked(blocking_world)
    assert read(*names) == WHOLE.select(names)
    requests = asked(blocking_world)
    assert requests["read_slices"] >= 1
    assert requests["read_batch"] == 0
    assert requests["read"] == 1  # the read of the index entry


def test_the_bytes_are_those_of_the_columns(blocking_world: BlockingWorld) -> None:
    write(*BATCHES, targetEntryBytes="1000000")
    taken = counted_bytes(blocking_world)
    assert read("c7") == WHOLE.select(["c7"])
    assert sum(taken) < WHOLE.nbytes * 8 / 100


def counted_bytes(world: BlockingWorld) -> list[int]:
    """Sizes of the answers from now on."""
    transport: Any = world.cluster.transport
    taken: list[int] = []

    def counting(call: Any) -> Any:
        def counted(bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
            def reply(code: Code, found: Any) -> None:
                whole = found if isinstance(found, bytes) else b"".join(found or ())
                taken.append(len(whole))
                on_reply(code, found)

            call(bookie_id, request, timeout_ms, reply)

        return counted

    for name in ("read", "read_batch", "read_slices"):
        setattr(transport, name, counting(getattr(transport, name)))
    return taken


def test_most_columns_come_in_whole_entries_without_the_index(world: BlockingWorld) -> None:
    indexes = index_reads(world)
    for names in (NUMBERS, [*TYPES]):
        assert read(*names) == WHOLE.select(names)
        assert asked(world)["read_slices"] == 0
    assert indexes == []


def index_reads(world: BlockingWorld) -> list[int]:
    """The reads of the index entry from now on."""
    transport: Any = world.cluster.transport
    (scanned,) = (
        BatchReader(URI, options().for_read(), schema_of("c0")).planned(b"").plan.partitions
    )
    index_id = scanned.ranges[0].slices_entry_id
    inner, found = transport.read, []

    def counted(bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        if request.entry_id == index_id:
            found.append(index_id)
        inner(bookie_id, request, timeout_ms, on_reply)

    transport.read = counted
    return found


def test_tasks_with_few_entries_of_a_range_do_not_read_its_index(
    blocking_world: BlockingWorld,
) -> None:
    write(*BATCHES, *BATCHES, compression="none")
    whole = pa.concat_tables([WHOLE, WHOLE]).select(["c7"])
    indexes = index_reads(blocking_world)
    asked(blocking_world)
    assert read("c7", maxRecordsPerPartition="200") == whole
    assert asked(blocking_world)["read_slices"] == 0
    assert indexes == []
    assert read("c7", maxRecordsPerPartition="6000") == whole
    assert asked(blocking_world)["read_slices"] == 2
    assert len(indexes) == 2  # one for each task


def test_an_index_that_disagrees_with_the_estimate_decides(
    world: BlockingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes = index_reads(world)
    monkeypatch.setattr(slice_choice, "NEEDED_SHARE_MAX", 2)
    assert read(*NUMBERS) == WHOLE.select(NUMBERS)
    assert asked(world)["read_slices"] == 0
    assert len(indexes) == 1


def test_metadata_columns_are_the_same(world: BlockingWorld) -> None:
    names = [*METADATA_COLUMNS, "c3"]
    sliced = read(*names, includeMetadata="true")
    assert asked(world)["read_slices"] >= 1
    whole = read(*METADATA_COLUMNS, *TYPES, includeMetadata="true")
    assert asked(world)["read_slices"] == 0
    assert sliced == whole.select(names)


def test_no_column_at_all_is_as_many_rows(world: BlockingWorld) -> None:
    assert read("_offset", includeMetadata="true").num_rows == ROWS
    assert asked(world)["read_slices"] >= 1


def test_offsets_and_tasks_cut_the_slices(world: BlockingWorld) -> None:
    given = {"startingOffsets": "1234", "endingOffsets": "4321"}
    for partitions in ("1", "5"):
        assert read("c0", minPartitions=partitions, **given) == WHOLE.select(["c0"])[1234:4321]
        assert asked(world)["read_slices"] >= 1


def test_a_small_range_is_read_whole(blocking_world: BlockingWorld) -> None:
    write(BATCHES[0])
    assert BATCHES[0].nbytes < SLICED_SIZE_BYTES_MIN
    asked(blocking_world)
    assert read("c7").num_rows == 1_000
    assert asked(blocking_world)["read_slices"] == 0


def test_bookies_without_the_operation_send_whole_entries(world: BlockingWorld) -> None:
    world.cluster.transport.without_slices |= set(world.cluster.names)
    assert read("c7") == WHOLE.select(["c7"])
    assert asked(world)["read_batch"] >= 1


@pytest.mark.parametrize("bookies", [1, 2])
def test_damaged_slices_come_from_another_bookie(world: BlockingWorld, bookies: int) -> None:
    world.cluster.transport.corrupt |= set(members(world)[:bookies])
    assert read("c7", "text") == WHOLE.select(["c7", "text"])


def test_slices_that_are_damaged_everywhere_are_read_in_whole_entries(
    world: BlockingWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read("c7")
    assert "slices given up" not in caplog.text
    asked(world)
    transport: Any = world.cluster.transport
    inner = transport.read_slices

    def damaged(bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        def reply(code: Code, found: Any) -> None:
            on_reply(code, [one[:-1] + bytes([one[-1] ^ 1]) for one in found])

        inner(bookie_id, request, timeout_ms, reply)

    monkeypatch.setattr(transport, "read_slices", damaged)
    assert read("c7") == WHOLE.select(["c7"])
    requests = asked(world)
    assert requests["read_batch"] >= 1
    assert requests["read_slices"] <= 10
    (line,) = [
        text
        for text in map(logging.LogRecord.getMessage, caplog.records)
        if "slices given up" in text
    ]
    assert json.loads(line) == {
        "event": "slices given up, so whole entries were read",
        "log": LOG,
        "ledger_id": json.loads(line)["ledger_id"],
        "count": 1,
    }


@pytest.mark.parametrize("fault", ["silent", "refusing", "slow"])
def test_a_bookie_that_fails_is_left_out(world: BlockingWorld, fault: str) -> None:
    (name, *_) = members(world)
    transport = world.cluster.transport
    if fault == "silent":
        transport.silent.add(name)
    elif fault == "refusing":
        transport.refusing[name] = Code.UNAVAILABLE
    else:
        transport.slow_seconds[name] = 3.0
    assert read("c7", "list") == WHOLE.select(["c7", "list"])


def test_older_rows_without_the_columns_are_read_in_slices_too(world: BlockingWorld) -> None:
    more = pa.Table.from_batches(BATCHES).append_column("new", pa.array(range(ROWS), pa.int64()))
    chosen = options(targetEntryBytes="50000", mergeSchema="true").for_write()
    schema = json.loads(schema_of(*TYPES))
    schema["fields"].append({"name": "new", "type": "long", "nullable": True, "metadata": {}})
    writer = BatchWriter(URI, chosen, json.dumps(schema), overwrite=False)
    writer.commit([writer.write(iter(more.combine_chunks().to_batches()))])
    TYPES["new"] = "long"
    try:
        asked(world)
        for names in (["new"], ["c3", "new"], ["new", "text"]):
            found = read(*names)
            older = WHOLE.select([name for name in names if name != "new"])
            assert found.num_rows == 2 * ROWS
            assert found["new"].combine_chunks() == pa.concat_arrays(
                [pa.nulls(ROWS, pa.int64()), pa.array(range(ROWS), pa.int64())]
            )
            assert found[:ROWS].select(older.column_names) == older
            assert found[ROWS:].select(older.column_names) == older
            requests = asked(world)
            assert requests["read_slices"] >= 2
            assert requests["read_batch"] == 0
    finally:
        del TYPES["new"]


def hostile(slices: tuple[bytes, ...]) -> Any:
    """A patch of `RangeIndex.of` that changes the slices in the index."""
    of = RangeIndex.of

    def patched(index_entry_id: int, entries: Any) -> RangeIndex:
        return replace(of(index_entry_id, entries), slices=slices)

    return patched


WRONG = {
    "huge": (pack(">6I", 1, 0, 1, 0, (1 << 32) - 1, 0),) * 200,
    "without a header": (pack(">6I", 0, 0, 1, 0, 90_000, 0),) * 200,
    "other checksums": (pack(">42I", *((500, 7) * 21)),) * 200,
    "behind the end": (pack(">42I", *((200_000, 7) * 21)),) * 200,
    "fewer entries": (pack(">42I", *((500, 7) * 21)),) * 2,
    "fewer columns": (pack(">6I", 100, 7, 100, 7, 900, 7),) * 200,
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_slices_cost_no_rows(
    world: BlockingWorld, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(RangeIndex, "of", hostile(WRONG[kind]))
    assert read("c0", "text") == WHOLE.select(["c0", "text"])
    assert asked(world)["read_slices"] <= 30


@pytest.mark.parametrize("code", [Code.OK, Code.UNAVAILABLE], ids=["damaged", "unknown"])
def test_an_index_entry_that_no_bookie_returns_costs_no_rows(
    world: BlockingWorld,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: Code,
) -> None:
    transport: Any = world.cluster.transport
    inner = transport.read

    index_id: list[int] = []  # the first entry that is read

    def other(bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        index_id.append(request.entry_id)
        is_index = request.entry_id == index_id[0]

        def answered(sent: Code, entry: Any) -> None:
            on_reply(*((code, flipped(code, entry)) if is_index else (sent, entry)))

        inner(bookie_id, request, timeout_ms, answered)

    monkeypatch.setattr(transport, "read", other)
    assert read("c0", "text") == WHOLE.select(["c0", "text"])
    assert asked(world)["read_slices"] == 0
    assert "index entry not read" in caplog.text


def flipped(code: Code, entry: Any) -> bytes | None:
    return bytes(entry[:-1]) + bytes([entry[-1] ^ 1]) if code is Code.OK else None


ANSWERS: dict[str, Any] = {
    "shorter": lambda found: [one[:-1] for one in found],
    "longer": lambda found: [one + b"x" for one in found],
    "empty": lambda found: [b"" for _ in found],
    "more entries": lambda found: [*found, *found],
    "no entries": lambda _: [],
    "other order": lambda found: found[::-1],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_other_answers_than_the_slices_cost_no_rows(
    world: BlockingWorld, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    transport: Any = world.cluster.transport
    inner = transport.read_slices

    def lying(bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        inner(
            bookie_id, request, timeout_ms, lambda code, found: on_reply(code, ANSWERS[kind](found))
        )

    monkeypatch.setattr(transport, "read_slices", lying)
    assert read("c0", "text") == WHOLE.select(["c0", "text"])


def test_a_stream_reads_slices_too(world: BlockingWorld) -> None:
    given = options(startingOffsets="earliest").for_stream()
    reader = LedgerStreamReader(URI, given, schema_of("c0", "c5"))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        batches = [b for each in reader.partitions(start, end) for b in reader.read(each)]
        assert pa.Table.from_batches(batches).combine_chunks() == WHOLE.select(["c0", "c5"])
        assert asked(world)["read_slices"] >= 1
        indexes = index_reads(world)
        every = LedgerStreamReader(URI, given, schema_of(*TYPES))
        table = table_of(b for each in reader.partitions(start, end) for b in every.read(each))
        assert table == WHOLE
        assert asked(world)["read_slices"] == 0
        assert indexes == []
    finally:
        reader.stop()


def members(world: BlockingWorld) -> list[str]:
    """The bookies with the rows of the log."""
    planned = BatchReader(URI, options().for_read(), schema_of("c0")).planned(b"")
    ledgers = {scanned.ledger_id for part in planned.plan.partitions for scanned in part.ranges}
    (ledger_id,) = ledgers
    return [name for name in world.cluster.names if holds(world, name, ledger_id)]


def holds(world: BlockingWorld, name: str, ledger_id: int) -> bool:
    return ledger_id in world.cluster.storages[name].ledgers
