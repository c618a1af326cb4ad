"""A stream whose commits keep its log small, on a real cluster."""

from __future__ import annotations

import threading

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.upkeep import upkeep as upkeep_module
from tests.fixtures.stream_query import WORKERS, StreamQuery

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

BATCHES = 24


def test_stream_has_its_closed_ranges_merged_and_goes_on(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "COMMITS_BETWEEN", BATCHES)
    query = StreamQuery(uri, "flights")
    for _ in range(BATCHES - 1):
        query.batch(WORKERS)
    query.close_ledgers()
    with ll.connect(uri) as client:
        log = BlockingLogs(client).open("flights")
        assert len(log.snapshot().items) == (BATCHES - 1) * WORKERS
        query.batch(WORKERS)
        for thread in threading.enumerate():
            if thread.name == upkeep_module.THREAD_NAME:
                thread.join()
        merged = log.snapshot()
        assert merged.interval.rows == BATCHES * WORKERS
        assert len(merged.items) == 1 + WORKERS
        query.batch(WORKERS)
        assert len(log.snapshot().items) == 1 + 2 * WORKERS
        assert not log.check(every_entry=True).findings
    query.close()
