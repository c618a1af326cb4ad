"""Versions without rows, whose place may be within a merged range."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.restore import RestoreMachine, RestoreRequest, cut_ranges
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.state.records import WriteMode
from tests.unit.log.log_values import OneLog, staged, token

EMPTY = 2
"""The version without rows."""


@pytest.fixture
def log() -> OneLog:
    """Ranges before and after the empty version, which were merged into one."""
    log = OneLog()
    log.commit(staged(1), schema=b"columns", is_first=True)
    schema = {"schema": b"columns", "schema_id": 0, "base_schema_id": 0}
    log.commit(mode=WriteMode.OVERWRITE, **schema)
    log.commit(staged(2), **schema)
    log.producer("merge", "merge")
    log.register("merge", 3)
    both = MergeRequest("merge", "merge", log.items(), replace(staged(3), rows=200))
    log.run(MergeMachine("flights", both, token=token(log.new_number())))
    assert len(log.items()) == 1
    return log


def test_nothing_is_listed_for_it(log: OneLog) -> None:
    snapshot = log.run(SnapshotMachine("flights", version=EMPTY))
    assert snapshot.interval.rows == 0
    assert snapshot.items == ()
    assert cut_ranges(snapshot.interval, snapshot.items) == ()


def test_it_is_restored_without_a_copy(log: OneLog) -> None:
    log.producer("restore", "restore")
    request = RestoreRequest(EMPTY, "restore", "restore", log.head.value.version, {})
    done = log.run(RestoreMachine("flights", request, token=token(log.new_number())))
    assert done.status is CommitStatus.COMMITTED
    assert log.head.value.start_offset == log.head.value.end_offset
