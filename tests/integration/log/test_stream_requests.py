"""What a micro-batch asks of ZooKeeper, by the count of the clients of every process."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.datasource import cluster as process
from ledgerlog_spark.datasource.options import SourceOptions
from ledgerlog_spark.datasource.stream_job import commit_stream, plan_stream
from ledgerlog_spark.datasource.write_task import stage_ranges
from ledgerlog_spark.local.cluster import local_cluster
from ledgerlog_spark.log.blocking_stream import BlockingStream, ledgers_of
from ledgerlog_spark.protocol.log_commit import CommitStatus
from ledgerlog_spark.protocol.log_epoch import JobKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.client.blocking import BlockingClient
    from ledgerlog_spark.protocol.log_records import StagedRange

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SCHEMA_JSON = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)
STEADY_REQUESTS_MAX = 6
ROLL_REQUESTS_MAX = 3
CLOSE_REQUESTS_MAX = 2
WORKERS = 4


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_cluster(bookies=3, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running.metadata_service_uri


class Query:
    """A streaming query: a driver's process and workers, each with a client of its own."""

    def __init__(self, uri: str, log: str, *, overwrite: bool = False, **options: str) -> None:
        self.uri = uri
        self.workers = [ll.connect(uri) for _ in range(WORKERS)]
        self.clients: list[BlockingClient] = [*self.workers, process.client_of(uri)]
        self.options = SourceOptions.parse({"log": log, **options}).for_stream_write()
        self.overwrite = overwrite
        self.batch_ids = itertools.count()

    def sent(self) -> int:
        return sum(c.run(self._sent) for c in self.clients)

    @staticmethod
    async def _sent(client: Any) -> int:
        return int(client.services.logs._tree.requests_sent)

    def batch(self, tasks: int) -> tuple[int, list[StagedRange]]:
        """Requests of the next batch, and its ranges."""
        before = self.sent()
        plan = plan_stream(self.uri, self.options, SCHEMA_JSON, overwrite=self.overwrite).plan
        batch_id = next(self.batch_ids)
        job = plan.job(app="query", run="run", batch_id=batch_id, kind=JobKind.STREAM)
        ranges: list[StagedRange] = []
        for task in range(tasks):
            stream = BlockingStream(self.workers[task % WORKERS], job)
            stream.join()
            row = pa.record_batch({"id": pa.array([batch_id * 1_000 + task], pa.int64())})
            ranges += stage_ranges(
                stream.open_range, job.schema, [row], compression="none", target_entry_bytes=4096
            )
        assert commit_stream(self.uri, job, ranges).status is CommitStatus.COMMITTED
        return self.sent() - before, ranges

    def close_ledgers(self) -> int:
        """Requests of closing what is kept open, as when it is idle or full; no batch waits."""
        before = self.sent()
        for worker in self.workers:
            worker.run(lambda client: ledgers_of(client).close())
        return self.sent() - before

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


@pytest.mark.parametrize("tasks", [1, 64])
def test_steady_batches_take_at_most_six_requests_whatever_the_number_of_tasks(
    tasks: int, uri: str
) -> None:
    query = Query(uri, f"steady-{tasks}")
    first, _ = query.batch(tasks)
    steady = [query.batch(tasks)[0] for _ in range(8)]
    query.close()
    assert first > max(steady)
    assert max(steady) <= STEADY_REQUESTS_MAX, steady


def test_rolled_ledgers_take_at_most_three_requests_more_each(uri: str) -> None:
    query = Query(uri, "rolling")
    _, before = query.batch(WORKERS)
    steady, _ = query.batch(WORKERS)
    closing = query.close_ledgers()
    rolled, after = query.batch(WORKERS)
    query.close()
    assert {r.ledger_id for r in before}.isdisjoint({r.ledger_id for r in after})
    assert rolled - steady <= 1 + WORKERS * ROLL_REQUESTS_MAX, (steady, rolled)
    assert closing <= WORKERS * CLOSE_REQUESTS_MAX
