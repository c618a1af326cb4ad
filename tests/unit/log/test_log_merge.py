"""The merge switch and restoring a version, without a store's faults."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LocalProtocolError,
    ProducerFencedError,
    VersionNotAvailableError,
)
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.restore import RestoreMachine, RestoreRequest, cut_ranges
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.read.versions import HistoryMachine, SnapshotMachine
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.codec import decode_page
from ledgerlog_spark.protocol.log.state.pages import HeadShare, PageWriter, replace_run
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    Operation,
    Paged,
    StagedRange,
    WriteMode,
)
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from tests.fixtures.examples import examples
from tests.unit.log.log_values import OneLog, staged, token

MERGER = "job:merger"


def merge(log: OneLog, items: tuple[Item, ...], into: int) -> Any:
    rows = sum(item.rows for item in items)
    log.producer(MERGER, "run")
    log.register(MERGER, into)
    request = MergeRequest(MERGER, "run", items, staged(into, rows=rows))
    return log.run(MergeMachine("flights", request, token=token(log.new_number())))


def restore(log: OneLog, version: int, **how: Any) -> Any:
    log.producer("job:restorer", "run")
    how.setdefault("copies", {})
    how.setdefault("planned_version", log.head.value.version)
    log.register("job:restorer", *(copy.ledger_id for copy in how["copies"].values()))
    request = RestoreRequest(version, "job:restorer", "run", **how)
    log.now_ms += 10
    return log.run(RestoreMachine("flights", request, token=token(log.new_number())))


def of_commits(count: int) -> OneLog:
    log = OneLog()
    for ledger_id in range(1, count + 1):
        log.commit(staged(ledger_id))
    return log


def test_merge_replaces_ranges_by_one_and_moves_no_offset_and_makes_no_version() -> None:
    log = of_commits(4)
    history = log.run(HistoryMachine("flights"))
    items = log.items()
    done = merge(log, items[1:3], into=9)
    assert (done.status, done.version) == (CommitStatus.COMMITTED, 4)
    assert [(i.ledger_id, i.first_offset, i.rows) for i in log.items()] == [
        (1, 0, 100), (9, 100, 200), (4, 300, 100),
    ]  # fmt: skip
    assert log.items()[1].newest_ms == items[2].newest_ms
    assert log.unlisted == [2, 3]
    assert log.run(HistoryMachine("flights")) == history
    as_of = log.run(SnapshotMachine("flights", version=2))
    assert as_of.interval.end_offset == 200
    assert [item.ledger_id for item in as_of.items] == [1, 9]


def test_merged_ledger_that_another_item_still_names_is_not_marked() -> None:
    log = OneLog()
    log.commit(staged(1), staged(2), staged(1))
    merge(log, log.items()[:2], into=9)
    assert log.unlisted == [2]


def test_merge_of_what_was_truncated_or_merged_meanwhile_changes_nothing() -> None:
    for spoil in ("truncate", "merge"):
        log = of_commits(4)
        items = log.items()
        if spoil == "merge":
            merge(log, items[2:4], into=8)
        else:
            log.run(TruncateMachine("flights", offset=150, token=token(log.new_number())))
        before = log.head
        with pytest.raises(ConcurrentCommitError) as lost:
            merge(log, items[:3], into=9)
        assert lost.value.definite
        assert lost.value.retriable
        assert log.head == before


def test_merge_of_a_ledger_that_was_deregistered_is_refused() -> None:
    log = of_commits(2)
    log.producer(MERGER, "run")
    request = MergeRequest(MERGER, "run", log.items(), staged(9, rows=200))
    before = log.head
    with pytest.raises(ProducerFencedError):
        log.run(MergeMachine("flights", request, token=token(log.new_number())))
    assert log.head == before


def test_merge_of_other_rows_gaps_or_schemas_cannot_be_requested() -> None:
    items = of_commits(3).items()
    for wrong, rows in (
        (items[:2], 199),
        ((items[0], items[2]), 200),
        ((items[0], replace(items[1], schema_id=7)), 200),
        ((), 0),
    ):
        with pytest.raises(LocalProtocolError):
            MergeRequest(MERGER, "run", wrong, staged(9, rows=rows or 1))


def test_restored_version_is_listed_again_at_new_offsets_and_no_row_is_copied() -> None:
    log = of_commits(2)
    log.commit(staged(3), mode=WriteMode.OVERWRITE)
    done = restore(log, 2)
    assert (done.status, done.version, done.end_offset) == (CommitStatus.COMMITTED, 4, 500)
    snapshot = log.run(SnapshotMachine("flights"))
    assert snapshot.interval.operation is Operation.RESTORE
    assert [(i.ledger_id, i.first_offset) for i in snapshot.items] == [(1, 300), (2, 400)]
    assert snapshot.interval.start_offset == 300
    assert [i.ledger_id for i in log.run(SnapshotMachine("flights", version=3)).items] == [3]


def test_restoring_the_empty_version_empties_the_log() -> None:
    log = of_commits(1)
    assert restore(log, 0).end_offset == 100
    assert log.run(SnapshotMachine("flights")).items == ()
    assert log.run(SnapshotMachine("flights")).interval.rows == 0


def test_restoring_what_the_log_has_already_makes_no_version() -> None:
    log = of_commits(2)
    assert restore(log, 2).status is CommitStatus.NOTHING_TO_COMMIT
    assert log.head.value.version == 2


def test_restore_planned_before_a_commit_of_others_fails_without_the_option() -> None:
    log = of_commits(2)
    log.commit(staged(3))
    with pytest.raises(ConcurrentCommitError) as refused:
        restore(log, 1, planned_version=2)
    assert refused.value.definite
    assert restore(log, 1, planned_version=2, overwrite_if_changed=True).version == 4


def test_restoring_a_version_that_was_truncated_names_the_oldest() -> None:
    log = of_commits(2)
    log.run(TruncateMachine("flights", offset=150, token=token(log.new_number())))
    with pytest.raises(VersionNotAvailableError) as gone:
        restore(log, 1)
    assert gone.value.oldest == 3


def test_version_that_ends_within_a_merged_range_is_restored_with_a_copy_of_its_part() -> None:
    log = of_commits(4)
    merge(log, log.items()[:3], into=9)
    snapshot = log.run(SnapshotMachine("flights", version=2))
    (part,) = cut_ranges(snapshot.interval, snapshot.items)
    assert (part.item.ledger_id, part.offsets) == (9, (0, 200))
    before = log.head
    with pytest.raises(ConcurrentCommitError):
        restore(log, 2)
    with pytest.raises(ConcurrentCommitError):
        restore(log, 2, copies={part.offsets: staged(10, rows=199)})
    assert log.head == before
    restore(log, 2, copies={part.offsets: staged(10, rows=200)})
    assert [(i.ledger_id, i.first_offset, i.rows) for i in log.items()][-1] == (10, 400, 200)


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    share = HeadShare(recent_size_bytes_max=300, pages_max=3)
    monkeypatch.setattr(log_pages, "SHARES", dict.fromkeys(log_pages.SHARES, share))
    monkeypatch.setattr(log_pages, "PAGE_BODY_SIZE_BYTES_MAX", 500)


def item(offset: int, rows: int = 1) -> Item:
    return Item(offset, 1, 1, -1, rows, 1, offset)


class Sequence:
    """A paged sequence of items whose pages are kept in a dictionary."""

    def __init__(self) -> None:
        self.paged: Paged[Item] = Paged()
        self.loaded: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.attempts = 0

    def writer(self) -> PageWriter:
        self.attempts += 1
        return PageWriter(token(self.attempts))

    def keep(self, writer: PageWriter, kinds: dict[int, Any]) -> None:
        for number, page in enumerate(writer.pages):
            kind = kinds[page[4]]
            self.loaded[writer.token, number] = decode_page(kind, page)

    def records(self) -> list[Item]:
        walk: ListWalk[Item] = ListWalk(ITEMS, self.paged, 0, 1 << 40)
        while walk.wanted:
            walk.feed([self.loaded[page.ref.token, page.ref.number] for page in walk.wanted])
        return list(walk.records())


@pytest.mark.usefixtures("_small_pages")
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 120), st.integers(0, 2**32))
def test_any_run_of_any_paged_list_is_replaced_as_in_a_plain_list(count: int, seed: int) -> None:
    random = Random(seed)
    kinds = dict(log_pages_kinds())
    sequence, plain = Sequence(), []
    offset = 0
    for _ in range(count):
        new = [item(offset + n) for n in range(random.randint(1, 3))]
        offset += len(new)
        writer = sequence.writer()
        sequence.paged = log_pages.append(ITEMS, sequence.paged, new, writer, sequence.loaded)
        sequence.keep(writer, kinds)
        plain += new
        if random.random() < 0.2:
            first = random.randrange(len(plain))
            run = plain[first : first + random.randint(1, len(plain))]
            rows = run[-1].end_offset - run[0].first_offset
            merged = replace(item(run[0].first_offset, rows), ledger_id=10**6 + offset)
            writer = sequence.writer()
            sequence.paged = replace_run(
                ITEMS, sequence.paged, run, [merged], writer, sequence.loaded
            )
            sequence.keep(writer, kinds)
            plain[first : first + len(run)] = [merged]
        assert sequence.records() == plain
        assert sequence.paged.count == len(plain)


def log_pages_kinds() -> dict[int, Any]:
    from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, REFS, SCHEMAS

    return {kind.page_kind: kind for kind in (ITEMS, HISTORY, SCHEMAS, REFS)}


@pytest.mark.usefixtures("_small_pages")
def test_merging_makes_pages_fewer() -> None:
    log = OneLog()
    for first in range(0, 60, 3):
        log.commit(*(staged(ledger_id, rows=1) for ledger_id in range(first, first + 3)))
    paged = log.head.value.items
    assert paged.index
    items = log.items()
    for number in range(0, 60, 10):
        merge(log, items[number : number + 10], into=100 + number)
    assert [i.ledger_id for i in log.items()] == [100, 110, 120, 130, 140, 150]
    after = log.head.value.items
    assert (len(after.index), len(after.pages) + len(after.recent)) <= (0, 3)


def test_copies_of_a_restore_are_ranges_of_its_producer() -> None:
    log = of_commits(2)
    copy = StagedRange(77, 1, 2, 2, 100, 10)
    log.producer("job:restorer", "run")
    request = RestoreRequest(1, "job:restorer", "run", 2, {(0, 100): copy})
    with pytest.raises(ProducerFencedError):
        log.run(RestoreMachine("flights", request, token=token(log.new_number())))
