"""A task whose ledger is sealed in the middle of a range goes on in another ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.datasource.write.task import stage_ranges
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.blocking.stream import BlockingStream
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.commit.epoch import JobKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.logs import BlockingLog
    from ledgerlog_spark.log.committing.job import Job

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SCHEMA_JSON = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)
SCHEMA = stored_schema(SCHEMA_JSON)
ROWS = 20_000


@pytest.fixture(scope="module")
def client(uri: str) -> Iterator[BlockingClient]:
    with ll.connect(uri) as connected:
        yield connected


def batches(sealed_at: dict[int, Any]) -> Iterator[pa.RecordBatch]:
    """Rows 0 to 19,999 in batches of 1,000. A ledger is sealed before some of the batches."""
    for first in range(0, ROWS, 1_000):
        sealed_at.get(first, int)()
        yield pa.record_batch({"id": pa.array(range(first, first + 1_000), pa.int64())})


def read(log: BlockingLog) -> list[tuple[int, int]]:
    """Each row with the offset in its entry."""
    rows = []
    for item in log.snapshot().items:
        entries = [
            entry.payload
            for batch in log.read_range(item.ledger_id, item.first_entry_id, item.last_entry_id)
            for entry in batch
        ]
        if item.index_entry_id != NO_ENTRY:
            entries.pop()
        for decoded in decode_entries(SCHEMA, entries):
            first = item.first_offset + decoded.first_row
            rows += list(enumerate(decoded.batch.column(0).to_pylist(), first))
    return rows


class Stage:
    """One batch of a stream, whose ledgers other clients may seal at any moment."""

    def __init__(self, client: BlockingClient, name: str) -> None:
        self.logs = BlockingLogs(client)
        self.log = self.logs.open_or_create(name, schema=SCHEMA)
        self.job: Job = self.log.begin(
            schema=SCHEMA, app="query", batch_id=0, run="run", kind=JobKind.STREAM
        )
        self.stream = BlockingStream(client, self.job)
        self.opened: list[Any] = []

    def open_range(self) -> Any:
        self.opened.append(self.stream.open_range())
        return self.opened[-1]

    def seal(self) -> None:
        self.logs.seal(self.opened[-1].ledger_id)

    def write(self, sealed_at: dict[int, Any]) -> Any:
        return stage_ranges(
            self.open_range,
            self.job.schema,
            batches(sealed_at),
            compression="none",
            target_entry_bytes=4096,
        )


def test_confirmed_rows_stay_and_the_others_are_written_again(
    client: BlockingClient, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(client, "fenced-twice")
    ranges = stage.write({6_000: stage.seal, 11_000: stage.seal})
    # A task that has not met the first seal yet has its first ledger sealed a second time.
    assert len(stage.opened) in {2, 3}
    assert f"LedgerFencedError: ledger {stage.opened[0].ledger_id}:" in caplog.text
    assert len({staged.ledger_id for staged in ranges}) == len(ranges)
    assert [staged.index_entry_id != NO_ENTRY for staged in ranges][-1]
    stage.stream.commit(ranges)
    assert read(stage.log) == [(row, row) for row in range(ROWS)]


def test_ledger_that_was_fenced_between_batches_is_replaced(client: BlockingClient) -> None:
    stage = Stage(client, "fenced-between")
    first = stage.write({})
    stage.seal()
    second = stage.write({})
    assert {r.ledger_id for r in first}.isdisjoint({r.ledger_id for r in second})
    stage.stream.commit([*first, *second])
    rows = [row for _, row in read(stage.log)]
    assert rows == [*range(ROWS), *range(ROWS)]


def test_batches_that_nobody_disturbs_share_a_ledger(client: BlockingClient) -> None:
    stage = Stage(client, "shared")
    first, second = stage.write({}), stage.write({})
    assert {r.ledger_id for r in first} == {r.ledger_id for r in second}
    assert second[0].first_entry_id == first[0].last_entry_id + 1
    stage.stream.commit([*first, *second])
    assert [offset for offset, _ in read(stage.log)] == list(range(2 * ROWS))


def test_a_ledger_that_is_taken_away_again_and_again_fails_the_attempt(
    client: BlockingClient,
) -> None:
    stage = Stage(client, "hopeless")

    def open_and_lose() -> Any:
        writer = stage.open_range()
        writer.append(b"sent, so that its bookies know the ledger", 1)
        stage.seal()
        return writer

    with pytest.raises((ll.errors.LedgerFencedError, ll.errors.LedgerClosedError)):
        stage_ranges(
            open_and_lose, SCHEMA, batches({}), compression="none", target_entry_bytes=4096
        )
    assert len(stage.opened) == 11
