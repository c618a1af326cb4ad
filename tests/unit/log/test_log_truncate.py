"""Truncation, retention and properties of a log, without a store's faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import ConfigurationError, VersionNotAvailableError
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.expiry import STEP_ITEMS_MAX, ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import RetentionMachine, due_by_age
from ledgerlog_spark.protocol.log.change.truncate import Truncated, TruncateMachine
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.properties import LogProperties, PropertiesMachine
from ledgerlog_spark.protocol.log.read.versions import HistoryMachine, SnapshotMachine
from ledgerlog_spark.protocol.log.state.records import LogKind, Operation, WriteMode
from ledgerlog_spark.protocol.log.sweep import LedgerSweep
from tests.unit.log.log_values import OneLog, new_head, staged, token

DAY_MS = 86_400_000


def truncate(log: OneLog, offset: int) -> Truncated:
    machine = TruncateMachine("flights", offset=offset, token=token(log.new_number()))
    done: Truncated = log.run(machine)
    return done


def retain(log: OneLog, *, ms: int = -1, size_bytes: int = -1) -> Truncated:
    machine = RetentionMachine(
        "flights", retention_ms=ms, retention_bytes=size_bytes, token=token(log.new_number())
    )
    done: Truncated = log.run(machine)
    return done


def ledgers(log: OneLog) -> list[int]:
    return [item.ledger_id for item in log.items()]


def test_truncation_moves_the_start_and_no_offset_and_drops_whole_items() -> None:
    log = OneLog()
    for ledger_id in (1, 2, 3):
        log.commit(staged(ledger_id))
    done = truncate(log, 150)
    assert (done.version, done.start_offset, done.unlisted) == (4, 150, (1,))
    snapshot = log.run(SnapshotMachine("flights"))
    assert (snapshot.interval.start_offset, snapshot.interval.end_offset) == (150, 300)
    assert snapshot.interval.operation is Operation.TRUNCATE
    assert [item.first_offset for item in snapshot.items] == [100, 200]
    log.commit(staged(4))
    assert log.head.value.end_offset == 400


def test_truncation_ends_every_version_that_begins_below_and_the_error_names_the_oldest() -> None:
    log = OneLog()
    log.commit(staged(1))
    log.commit(staged(2), mode=WriteMode.OVERWRITE)
    log.commit(staged(3))
    assert truncate(log, 100).version == 3
    assert [v.version for v in log.run(HistoryMachine("flights"))] == [2, 3]
    assert ledgers(log) == [2, 3]
    assert truncate(log, 101).version == 4
    with pytest.raises(VersionNotAvailableError) as gone:
        log.run(SnapshotMachine("flights", version=3))
    assert gone.value.oldest == 4
    assert log.run(SnapshotMachine("flights", version=4)).interval.rows == 199


def test_truncation_to_where_the_log_begins_changes_nothing() -> None:
    log = OneLog()
    log.commit(staged(1))
    truncate(log, 50)
    before = log.head
    assert truncate(log, 50) == truncate(log, 20) == Truncated(2, 50, 2)
    assert log.head == before


def test_truncation_to_the_end_empties_the_log_and_the_next_row_has_the_next_offset() -> None:
    log = OneLog()
    log.commit(staged(1))
    assert truncate(log, 100).unlisted == (1,)
    assert log.items() == ()
    log.commit(staged(2))
    assert [item.first_offset for item in log.items()] == [100]


@pytest.mark.parametrize("offset", [-1, 101])
def test_truncation_to_an_offset_that_the_log_does_not_have_is_refused(offset: int) -> None:
    log = OneLog()
    log.commit(staged(1))
    before = log.head
    with pytest.raises(ConfigurationError, match=r"end at 100\. Set an offset from 0 to 100$"):
        truncate(log, offset)
    assert log.head == before


def test_ledger_of_a_dropped_item_stays_while_another_item_names_it() -> None:
    log = OneLog()
    log.commit(staged(1), replace(staged(2), first_entry_id=1), staged(1))
    assert truncate(log, 200).unlisted == (2,)
    assert ledgers(log) == [1]


def test_large_truncation_drops_a_thousand_items_a_step_and_is_whole_after_the_first() -> None:
    log = OneLog()
    count = 2 * STEP_ITEMS_MAX + 500
    log.commit(*(staged(ledger_id, rows=1) for ledger_id in range(count)))
    done = truncate(log, count - 1)
    assert not done.is_complete
    assert len(done.unlisted) == STEP_ITEMS_MAX
    snapshot = log.run(SnapshotMachine("flights"))
    assert [item.ledger_id for item in snapshot.items] == [count - 1]
    steps: list[Any] = []
    while not (steps and steps[-1].is_complete):
        machine = ExpiryMachine(
            "flights", version_retention_ms=DAY_MS, token=token(log.new_number())
        )
        steps.append(log.run(machine))
    assert [len(step.unlisted) for step in steps] == [STEP_ITEMS_MAX, 499]
    assert log.unlisted == list(range(count - 1))
    assert ledgers(log) == [count - 1]


def test_retention_by_time_drops_what_is_older_and_no_younger_row() -> None:
    log = OneLog()
    log.commit(staged(1), staged(2))
    first_ms = log.head.value.commit_time_ms
    log.now_ms += DAY_MS
    log.commit(staged(3))
    log.now_ms = first_ms + DAY_MS
    assert retain(log, ms=DAY_MS).start_offset == 0
    log.now_ms += 1
    assert retain(log, ms=DAY_MS).start_offset == 200
    assert log.unlisted == [1, 2]
    assert ledgers(log) == [3]


def test_retention_by_size_keeps_at_least_the_bytes_and_the_newest_item() -> None:
    log = OneLog()
    sizes = [staged(ledger_id).size_bytes for ledger_id in (1, 2, 3)]
    log.commit(*(staged(ledger_id) for ledger_id in (1, 2, 3)))
    assert retain(log, size_bytes=sizes[1] + sizes[2] + 1).start_offset == 0
    assert retain(log, size_bytes=sizes[1] + sizes[2]).start_offset == 100
    assert retain(log, size_bytes=1).start_offset == 200
    assert ledgers(log) == [3]


def test_retention_waits_until_it_frees_a_ledger() -> None:
    log = OneLog()
    log.commit(staged(1), staged(1), staged(2))
    assert retain(log, size_bytes=staged(1).size_bytes + staged(2).size_bytes).start_offset == 0
    assert retain(log, size_bytes=staged(2).size_bytes).start_offset == 200


def test_retention_does_not_count_what_was_overwritten_and_leaves_it_to_its_versions() -> None:
    log = OneLog()
    log.commit(staged(1))
    log.commit(staged(2), mode=WriteMode.OVERWRITE)
    log.commit(staged(3))
    both = staged(2).size_bytes + staged(3).size_bytes
    assert retain(log, size_bytes=both).oldest_version == 0
    assert retain(log, size_bytes=both - 1).start_offset == 100
    assert retain(log, size_bytes=staged(3).size_bytes).start_offset == 200


def test_items_of_unknown_age_go_with_the_next_that_says() -> None:
    log = OneLog()
    log.commit(staged(1), staged(2), staged(3))
    items: list[Any] = list(log.items())
    items[0] = replace(items[0], newest_ms=0)
    items[2] = replace(items[2], newest_ms=0)
    since_ms = items[1].newest_ms + 1
    assert due_by_age(items, since_ms=since_ms) == items[1].end_offset


def test_sweeper_that_is_overtaken_by_a_commit_after_its_first_look_drops_nothing() -> None:
    log = OneLog()
    log.commit(staged(1))
    truncate(log, 100)
    log.producer("stream", "run")
    log.register("stream", 1)
    sweep = LedgerSweep("flights", {1: 7, 2: 7})
    asked: list[Any] = []
    (ask,) = sweep.start()
    while not isinstance(ask, m.Finished):
        asked.append(type(ask))
        if isinstance(ask, m.ReadRegistrations):
            request = CommitRequest("stream", "run", 0, (staged(1),), planned_version=2)
            log.run(CommitMachine("flights", request, token=token(log.new_number())))
            found = (("stream", log.producers["stream"], (1,)),)
            (ask,) = sweep.handle(m.RegistrationsRead(ask.request, MetadataOutcome.OK, found))
        elif isinstance(ask, m.DropLedger):
            assert ask.ledger_id == 2
            (ask,) = sweep.handle(m.Written(ask.request, MetadataOutcome.OK))
        else:
            (ask,) = sweep.handle(log.reply(ask))
    assert ask.result == (2,)
    assert asked.count(m.ReadHead) == 2
    assert ledgers(log) == [1]


def change(log: OneLog, **changes: str | None) -> dict[str, str]:
    machine = PropertiesMachine("flights", changes, token=token(log.new_number()))
    properties: dict[str, str] = log.run(machine)
    return properties


def test_properties_change_without_a_new_version_and_a_default_comes_back() -> None:
    log = OneLog(*new_head({"retentionMs": "5", "rollMs": "60000"}))
    assert change(log, RETENTIONMS="7", ackQuorum="3") == {
        "retentionMs": "7", "rollMs": "60000", "ackQuorum": "3",
    }  # fmt: skip
    assert change(log, retentionMs=None, rollMs=None) == {"ackQuorum": "3"}
    assert log.head.value.version == 0
    assert LogProperties.from_mapping(log.head.value.properties).retention_ms == -1


def test_properties_that_are_as_wanted_already_are_not_written() -> None:
    log = OneLog(*new_head({"retentionMs": "5"}))
    before = log.head
    assert change(log, retentionms="5", rollMs=None) == {"retentionMs": "5"}
    assert log.head == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "leader"}, "fixed when the log is created"),
        ({"retentionMS_": "5"}, "did you mean retentionMs"),
        ({"colour": "red"}, "one of ensembleSize"),
        ({"ackQuorum": "4"}, "quorum"),
        ({"rollBytes": "0"}, "greater than 0"),
        ({"retentionBytes": "1 GB"}, "whole number"),
    ],
)
def test_properties_that_cannot_be_change_nothing(changes: dict[str, str], says: str) -> None:
    log = OneLog(*new_head({"retentionMs": "5"}))
    before = log.head
    with pytest.raises(ConfigurationError, match=says):
        change(log, **changes)
    assert log.head == before


def test_every_step_of_a_truncation_gives_the_head_another_token() -> None:
    """If a page is missing, a reader compares the tokens of two heads (LOGS.md#Q3)."""
    head, pages = new_head()
    log = OneLog(replace(head, kind=LogKind.LEADER, end_offset=200), pages)
    truncate(log, 150)
    assert log.head.value.token == token(2 << 16)
    assert log.head.value.start_offset == 150
