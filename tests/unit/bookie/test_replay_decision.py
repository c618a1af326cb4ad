"""The decision of a start on an unreadable index in a file that no MANIFEST calls finished."""

from __future__ import annotations

import pytest

from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.replay_decision import FileScan, Gap, judge
from bookie_server.storage.replay import head_spans


def record(kind: JournalRecordKind, sequence: int) -> JournalRecord:
    made = JournalRecord(kind, 1)
    made.sequence, made.offset, made.header_size = sequence, 8192 + 512 * sequence, 108
    made.durable_upto = sequence - 1
    return made


@pytest.mark.parametrize(
    ("lengths", "spans"),
    [
        ((30,), [(0, 24)]),
        ((30, 40), [(0, 24), (30, 54)]),
        ((30, 40, 50), [(0, 24), (70, 94)]),
    ],
)
def test_lac_of_a_run_is_read_from_its_first_and_its_last_entry(
    lengths: tuple[int, ...], spans: list[tuple[int, int]]
) -> None:
    run = JournalRecord(
        JournalRecordKind.RUN,
        1,
        entry_ids=range(len(lengths)),
        lengths=lengths,
        body=bytes(sum(lengths)),
    )
    assert head_spans(run) == spans


def scans(first_of_next: int) -> tuple[FileScan, FileScan]:
    """Two runs, and a finish record whose index is damaged; then the next file."""
    finish = record(JournalRecordKind.FINISH, 3)
    gaps = [Gap(finish.offset, 3, finish), Gap(finish.offset + 512, 4, None, is_blank=True)]
    runs = [record(JournalRecordKind.RUN, 1), record(JournalRecordKind.RUN, 2)]
    following = FileScan(8192, 9, [record(JournalRecordKind.RUN, first_of_next)])
    return FileScan(8192, 4, runs, gaps), following


@pytest.mark.parametrize(("first_of_next", "is_hidden"), [(4, False), (6, True)])
def test_damaged_index_hides_a_record_only_when_one_is_missing(
    first_of_next: int, is_hidden: bool
) -> None:
    scan, following = scans(first_of_next)
    verdict = judge(scan, 8, previous=None, following=following)
    assert verdict.has_damage is is_hidden
    assert [r.sequence for r in verdict.kept] == [1, 2]
    assert verdict.unreadable == []
    assert verdict.last_sequence == 2


def test_gap_after_the_last_synced_record_hides_nothing() -> None:
    blank = Gap(8192 + 512 * 2, 2, None, is_blank=True)
    records = [record(JournalRecordKind.RUN, 1), record(JournalRecordKind.RUN, 3)]
    scan = FileScan(8192, 4, records, [blank])
    for synced, is_hidden in ((1, False), (2, True)):
        following = FileScan(8192, 9, [record(JournalRecordKind.RUN, 6)])
        verdict = judge(scan, synced, previous=None, following=following)
        assert verdict.has_damage is is_hidden
