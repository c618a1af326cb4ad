"""Merging processes that are killed leave the log as it was or merged, and nothing for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.arrow.stream_codec import BatchEncoder
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.fixtures.small_log import ROWS, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.logs import BlockingLog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

MERGE = "import sys; sys.argv[0] = 'ledgerlog'; from ledgerlog_spark.cli.main import main; main()"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster for which nobody else does upkeep."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.up(3)
    yield cluster.metadata_service_uri
    cluster.down()


def merge(uri: str, log: str, failpoint: str = "") -> int:
    """Exit code of a process that merges the log."""
    environment = {**os.environ, "LEDGERLOG_METADATA_SERVICE_URI": uri}
    if failpoint:
        environment["LEDGERLOG_FAILPOINT"] = failpoint
    done = subprocess.run(
        [sys.executable, "-c", MERGE, "logs", "merge", log],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode


def two_ranges(client: BlockingClient, name: str) -> BlockingLog:
    """A log of two commits of three rows each."""
    write_log(client, name, ROWS)
    log = BlockingLogs(client).open(name)
    schema = log.state().schema
    assert schema is not None
    job = log.begin(schema=schema)
    writer = log.open_range(job)
    (batch,) = ROWS.combine_chunks().to_batches()
    writer.append(BatchEncoder(ROWS.schema).encode(batch, 0), batch.num_rows)
    staged = writer.finish()
    assert staged is not None
    log.commit(job, [staged])
    return log


def swept(client: BlockingClient, log: BlockingLog) -> int:
    """Ledgers that a sweep deregisters when jobs have no time at all."""
    log.set_properties({"stagingTtlMs": "1"})
    done, errors = BlockingLogs(client).sweep()
    assert not errors
    log.set_properties({"stagingTtlMs": None})
    return sum(each.deregistered for each in done)


@pytest.mark.parametrize(
    "failpoint",
    [
        "ledger.registered", "range.rows_sent", "range.acknowledged", "ledger.closed",
        "commit.before_multi",
    ],
)  # fmt: skip
def test_merge_killed_before_its_switch_changes_nothing_and_its_ledger_is_swept(
    uri: str, failpoint: str
) -> None:
    name = failpoint.replace(".", "-")
    with ll.connect(uri) as client:
        log = two_ranges(client, name)
        before = log.snapshot()
        assert merge(uri, name, failpoint) == -signal.SIGKILL
        assert log.snapshot() == before
        check = log.check()
        assert (check.findings, len(check.staged)) == ((), 1)
        assert swept(client, log) == 1
        assert merge(uri, name) == 0
        after = log.snapshot()
        assert [item.rows for item in after.items] == [6]
        assert after.interval == before.interval
        assert not log.check(every_entry=True).findings


def test_merge_killed_after_its_switch_has_happened_and_keeps_its_ledger(uri: str) -> None:
    with ll.connect(uri) as client:
        log = two_ranges(client, "switched")
        before = log.snapshot()
        assert merge(uri, "switched", "commit.after_multi") == -signal.SIGKILL
        after = log.snapshot()
        assert [item.rows for item in after.items] == [6]
        assert after.interval == before.interval
        assert swept(client, log) == 2  # those of the ranges that it replaced
        check = log.check(every_entry=True)
        assert (check.findings, check.staged, len(check.marked)) == ((), (), 2)
        assert merge(uri, "switched") == 0
        assert log.snapshot() == after
