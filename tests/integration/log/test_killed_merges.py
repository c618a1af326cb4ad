"""A killed merge leaves the log either unchanged or merged, and leaves no garbage for ever."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.arrow.stream_codec import BatchEncoder
from ledgerlog_spark.cli.main import main
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.fixtures.bookie_cluster import bookie_cluster
from tests.fixtures.forked import exit_code
from tests.fixtures.small_log import ROWS, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.logs import BlockingLog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_MS_MAX = 3_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a cluster for which nobody else does upkeep. Its sessions are short, because a
    merge waits until the session of the killed process has ended, which has the lease of the
    cluster.
    """
    directory = tmp_path_factory.mktemp("cluster")
    with (
        ZooKeeperProcess(directory / "zookeeper", tick_time_ms=SESSION_MS_MAX // 20) as zookeeper,
        bookie_cluster(directory, zookeeper.service_uri) as cluster,
    ):
        yield cluster.uri


def merge(uri: str, log: str, failpoint: str = "") -> int:
    """Run a process that merges the log, and return its exit code."""
    return exit_code(run_merge, uri, log, failpoint=failpoint)


def run_merge(uri: str, log: str) -> None:
    """`ledgerlog logs merge LOG` in this process."""
    os.environ[SERVICE_URI_VARIABLE] = uri
    sys.argv = ["ledgerlog", "logs", "merge", log]
    main()


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
    """The number of ledgers that a sweep deregisters if the age limit of jobs is zero."""
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
