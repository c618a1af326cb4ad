"""The view of a reader on the head of a leader log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.protocol.leader.list import list_change
from ledgerlog_spark.protocol.leader.messages import LedgerEnd
from ledgerlog_spark.protocol.ledger.messages import CloseRequested
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind, LogSnapshot
from tests.sim.leader.world import leader_head
from tests.unit.leader.bench import Bench
from tests.unit.log.log_values import token


def snapshot(bench: Bench) -> LogSnapshot:
    found = bench.log.run(SnapshotMachine("flights"))
    assert isinstance(found, LogSnapshot)
    return found


def test_snapshot_ends_with_the_newest_item_and_names_the_open_ledgers() -> None:
    bench = Bench()
    old = bench.leader()
    old.append(4)
    bench.leader()
    found = snapshot(bench)
    assert (found.kind, found.content) == (LogKind.LEADER, LogContent.RECORDS)
    assert (found.interval.start_offset, found.interval.end_offset) == (0, 4)
    assert [item.end_offset for item in found.items] == [4]
    (opened,) = found.open_ledgers
    assert (opened.ledger_id, opened.first_offset) == (bench.open_ids[0], 4)


def test_snapshot_of_a_truncated_log_begins_where_the_log_does() -> None:
    bench = Bench()
    old = bench.leader()
    old.append(4)
    old.append(6)
    bench.leader()
    bench.log.run(TruncateMachine("flights", offset=5, token=token(80)))
    found = snapshot(bench)
    assert (found.interval.start_offset, found.interval.end_offset) == (5, 10)
    assert [item.first_offset for item in found.items] == [0], "the item that holds the start"


def test_leader_log_has_no_versions_to_read() -> None:
    bench = Bench()
    with pytest.raises(LogKindError, match="no versions"):
        bench.log.run(SnapshotMachine("flights", version=0))


def test_change_of_the_list_keeps_the_time_of_the_newest_record() -> None:
    bench = Bench()
    leader = bench.leader()
    leader.append()
    newest_ms = leader.orders[-1].append_time_ms
    leader.confirm(bench.open_ids[0])
    leader.tell(CloseRequested())
    leader.settle()
    assert bench.head.commit_time_ms == newest_ms


def test_items_of_a_log_of_rows_carry_its_schema() -> None:
    head = replace(leader_head({}), content=LogContent.ROWS, schema_id=3)
    opened, _ = list_change(head, {}, 7, 100).build(token(1), {})
    end = LedgerEnd(1, 200, 0, 9, 50)
    closed, _ = list_change(opened, {7: end}, None, 100).build(token(2), {})
    assert [item.schema_id for item in closed.items.recent] == [3]
    assert closed.end_offset == 9
