"""The streaming source on a real cluster: crashes at any point, and the cost of its calls."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.errors import ConfigurationError, DataLossError, MetadataUnavailableError
from ledgerlog_spark.local.cluster import local_cluster
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger
from tests.fixtures.patience import until
from tests.integration.stream_source.stream_query import (
    SCHEMA_JSON,
    CrashError,
    Query,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgerlog_spark.client.client import LedgerClient
    from ledgerlog_spark.datasource.stream.reader import LedgerStreamReader
    from ledgerlog_spark.upkeep.merging import Merged

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

RECORDS_JSON = (
    '{"type":"struct","fields":[{"name":"value","type":"binary","nullable":true,"metadata":{}}]}'
)


@pytest.fixture
def log() -> str:
    return f"log-{uuid.uuid4().hex}"


def merge(uri: str, log: str) -> Merged:
    """Merge all ranges that can be merged."""

    async def merged(client: LedgerClient) -> Merged:
        opened = await logs_of(client).open(log)
        return await LogMerger(opened, client, MergePolicy(), seals=True).merge()

    return client_of(uri).run(merged)


def requests(uri: str) -> int:
    """The number of requests that this process's client has sent to ZooKeeper."""

    async def sent(client: Any) -> int:
        return int(client.services.logs._tree.requests_sent)

    return client_of(uri).run(sent)


def with_metadata(schema_json: str) -> str:
    """The schema with the columns that `includeMetadata` adds."""
    schema = json.loads(schema_json)
    schema["fields"] += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in METADATA_COLUMNS.items()
    ]
    return json.dumps(schema)


def sent_by(uri: str, ask: Callable[[], object]) -> int:
    """The number of requests to ZooKeeper for two hundred calls of the source."""
    before = requests(uri)
    for _ in range(200):
        ask()
    return requests(uri) - before


def column(rows: list[Any]) -> list[Any]:
    return [row[0] for row in rows]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 25)),
        st.tuples(st.just("overwrite"), st.integers(1, 12)),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("run"), st.none() | st.integers(1, 15)),
        st.tuples(st.just("crash in the next"), st.none() | st.integers(1, 15)),
        st.tuples(st.just("crash in the one after"), st.none() | st.integers(1, 15)),
    ),
    min_size=3,
    max_size=12,
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, metadata=st.booleans())
def test_every_row_is_read_once_and_in_order_whatever_happens(
    uri: str, steps: list[tuple[str, Any]], metadata: bool
) -> None:
    log = f"log-{uuid.uuid4().hex}"
    write(uri, log, [])
    query = Query(
        uri,
        with_metadata(SCHEMA_JSON) if metadata else SCHEMA_JSON,
        log=log,
        startingOffsets="earliest",
        onOverwrite="continue",
        includeMetadata=str(metadata),
    )
    written = begun = 0
    for step, number in steps:
        if step in {"append", "overwrite"}:
            ids = range(written, written + number)
            if step == "overwrite" and not query.logged:
                begun = written
            write(uri, log, ids, overwrite=step == "overwrite")
            written += number
        elif step == "merge":
            merge(uri, log)
        else:
            limit = {} if number is None else {"maxRowsPerTrigger": str(number)}
            crashes = {"crash in the next": 0, "crash in the one after": 1}
            crash_at = query.done + crashes[step] if step in crashes else None
            with contextlib.suppress(CrashError):
                query.run(crash_at=crash_at, **limit)
    query.run()
    assert column(query.all_rows) == list(range(begun, written))


def test_asking_for_the_end_costs_zookeeper_nothing_while_nothing_changes(
    uri: str, log: str
) -> None:
    write(uri, log, range(10))
    query = Query(uri, log=log, startingOffsets="earliest")
    reader = query.open()
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)

    def ask() -> None:
        assert reader.latestOffset(end, limit) == end
        reader.reportLatestOffset()

    # Requests of the writer, and those that set up the watches, may still be in flight.
    assert any(sent_by(uri, ask) == 0 for _ in range(10))
    start = reader.initialOffset()
    assert any(sent_by(uri, lambda: reader.partitions(start, end)) == 0 for _ in range(10))
    reader.stop()


def test_a_commit_is_noticed_without_asking_and_costs_two_requests(uri: str, log: str) -> None:
    write(uri, log, range(10))
    query = Query(uri, log=log, startingOffsets="earliest")
    reader = query.open()
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    costs = []
    for number in range(1, 11):
        write(uri, log, range(number * 10, number * 10 + 10))
        before = requests(uri)
        end = asked_until(reader, end, {log: number * 10 + 10})
        costs.append(requests(uri) - before)
    assert min(costs) <= 2, "the head, and its watch set again; the writer's last may come late"
    reader.stop()


def test_a_batch_reads_the_same_rows_after_its_ranges_were_merged(uri: str, log: str) -> None:
    for first in range(0, 30, 10):
        write(uri, log, range(first, first + 10))
    query = Query(
        uri,
        with_metadata(SCHEMA_JSON),
        log=log,
        startingOffsets="earliest",
        includeMetadata="true",
        maxRowsPerTrigger="12",
    )
    with pytest.raises(CrashError):
        query.run(crash_at=1)
    assert merge(uri, log).ranges_after == 1
    query.run()
    assert column(query.all_rows) == list(range(30))


def test_a_batch_of_another_log_is_not_read_again(uri: str, log: str) -> None:
    write(uri, log, range(10))
    write(uri, f"{log}-b", range(10))
    query = Query(uri, log=log, startingOffsets="earliest")
    with pytest.raises(CrashError):
        query.run(crash_at=0)
    with pytest.raises(ConfigurationError, match="the checkpoint belongs to log"):
        query.run(log=f"{log}-b")
    assert column(query.run()) == list(range(10))


def test_rows_truncated_between_a_batch_and_its_replay_are_data_loss(uri: str, log: str) -> None:
    write(uri, log, range(30))
    query = Query(uri, log=log, startingOffsets="earliest", maxRowsPerTrigger="10")
    with pytest.raises(CrashError):
        query.run(crash_at=1)
    client_of(uri).logs.open(log).truncate(15)
    with pytest.raises(DataLossError, match="5 rows were truncated"):
        query.run()


def test_a_leader_log_is_read_up_to_what_is_acknowledged_while_it_grows(uri: str, log: str) -> None:
    with client_of(uri).open_log(log, lead=True) as leader:
        leader.append_many([b"%d" % n for n in range(100)])
        leader.flush()
        query = Query(uri, RECORDS_JSON, log=log, startingOffsets="earliest")
        reader = query.open(maxRowsPerTrigger="1000")
        limit = reader.getDefaultReadLimit()
        start = reader.initialOffset()
        end = asked_until(reader, start, {log: 100})
        assert any(sent_by(uri, lambda: reader.latestOffset(end, limit)) == 0 for _ in range(10))
        leader.append_many([b"%d" % n for n in range(100, 150)])
        leader.flush()
        following = asked_until(reader, end, {log: 150})
        values = [
            row["value"]
            for partition in reader.partitions(start, following)
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]
        assert values == [b"%d" % n for n in range(150)]
        reader.stop()


def asked_until(
    reader: LedgerStreamReader, start: dict[str, Any], ends: dict[str, int]
) -> dict[str, Any]:
    """The end of a batch after a watch has reported all written rows."""

    def end_of_all() -> dict[str, Any] | None:
        end: dict[str, Any] = reader.latestOffset(start, reader.getDefaultReadLimit())
        return end if {log: place["offset"] for log, place in end.items()} == ends else None

    return until(end_of_all)


def run_until(query: Query, count: int) -> None:
    """Run until all rows are read. Appended rows are announced to readers a little later."""

    def has_read_all() -> bool:
        query.run()
        return len(query.all_rows) >= count

    until(has_read_all)
    assert column(query.all_rows) == [b"%d" % n for n in range(count)]


def test_a_leader_log_is_read_over_rolls_a_crash_and_truncation(uri: str, log: str) -> None:
    query = Query(uri, RECORDS_JSON, log=log, startingOffsets="earliest", maxRowsPerTrigger="40")
    with client_of(uri).open_log(log, lead=True) as leader:
        for first in range(0, 150, 50):
            leader.append_many([b"%d" % n for n in range(first, first + 50)])
            leader.roll()
        leader.flush()
        with pytest.raises(CrashError):
            query.run(crash_at=2)
        positions = leader.append_many([b"%d" % n for n in range(150, 200)])
        leader.flush()
        run_until(query, 200)
        leader.append_many([b"%d" % n for n in range(200, 210)])
        leader.flush()
        leader.truncate(positions[-1])
        run_until(query, 210)


def test_a_query_goes_on_with_what_it_knows_while_zookeeper_is_away(
    tmp_path: Path, log: str
) -> None:
    with local_cluster(bookies=3, directory=tmp_path / "cluster") as cluster:
        uri = cluster.metadata_service_uri
        write(uri, log, range(10))
        query = Query(uri, log=log, startingOffsets="earliest")
        reader = query.open()
        limit = reader.getDefaultReadLimit()
        start = reader.initialOffset()
        end = reader.latestOffset(start, limit)
        cluster.kill("zookeeper")
        assert reader.latestOffset(end, limit) == end
        told = reader.reportLatestOffset()
        assert told is not None
        assert told[log]["lag"]["rows"] == 0
        coming_back = threading.Thread(target=cluster.start, args=("zookeeper",))
        coming_back.start()
        assert len(reader.partitions(start, end)) == 1, "it asks again for a minute"
        coming_back.join()
        write_when_it_is_back(uri, log, range(10, 20))
        asked_until(reader, end, {log: 20})
        reader.stop()
        client_of(uri).close()


def write_when_it_is_back(uri: str, log: str, ids: range) -> None:
    def has_written() -> bool:
        try:
            write(uri, log, ids)
        except MetadataUnavailableError:
            return False
        return True

    until(has_written)
