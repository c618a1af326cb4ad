"""The size of one micro-batch (ledgerlog_spark.datasource.stream.admission)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.datasource.stream.admission import Backlog, Limits, admitted, even_shares
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import Item
from tests.fixtures.examples import examples


def items_of(*ranges: tuple[int, int], entries: int = 10, first: int = 0) -> list[Item]:
    """Ranges of (rows, bytes), one after the other."""
    listed = []
    for ledger_id, (rows, size_bytes) in enumerate(ranges):
        listed.append(Item(ledger_id, 1, entries + 1, entries + 1, rows, size_bytes, first))
        first += rows
    return listed


def backlog(
    *ranges: tuple[int, int], log: str = "a", first: int = 0, since: int = 0, entries: int = 10
) -> Backlog:
    listed = items_of(*ranges, entries=entries)
    return Backlog(log, first, listed[-1].end_offset if listed else first, listed, since)


def test_without_limits_everything_is_taken() -> None:
    assert admitted([backlog((100, 1000), (50, 10))], Limits()) == {"a": 150}


def test_rows_are_exact_to_the_row() -> None:
    assert admitted([backlog((100, 1000), (50, 10), first=30)], Limits(rows=77)) == {"a": 107}


def test_bytes_are_a_rows_share_of_its_range() -> None:
    two = backlog((100, 1000), (100, 100_000))
    assert admitted([two], Limits(size_bytes=10_500)) == {"a": 109}
    assert admitted([two], Limits(size_bytes=1_500)) == {"a": 100}


def test_both_limits_hold() -> None:
    one = backlog((100, 1000))
    assert admitted([one], Limits(rows=50, size_bytes=400)) == {"a": 40}
    assert admitted([one], Limits(rows=30, size_bytes=400)) == {"a": 30}


def test_less_than_an_entry_is_rounded_up_to_about_one() -> None:
    one = backlog((100, 1000), entries=4)
    assert admitted([one], Limits(size_bytes=1)) == {"a": 25}
    assert admitted([one], Limits(size_bytes=1, rows=7)) == {"a": 7}
    assert admitted([backlog((100, 1000), first=98)], Limits(size_bytes=1)) == {"a": 100}


def test_the_log_that_waited_longest_gets_the_entry() -> None:
    first = backlog((100, 10_000), log="a", since=20)
    second = backlog((100, 10_000), log="b", since=10)
    assert admitted([first, second], Limits(size_bytes=1)) == {"a": 0, "b": 10}


def test_a_log_without_a_share_of_the_rows_does_not_stop_the_others() -> None:
    logs = [backlog((1, 10), log="a", since=10), backlog((1, 10), log="b", since=20)]
    assert admitted(logs, Limits(rows=1, size_bytes=1)) == {"a": 0, "b": 1}


def test_logs_share_evenly_and_leave_what_they_do_not_use() -> None:
    logs = [backlog((10, 10), log="a"), backlog((1000, 1), log="b"), backlog((1000, 1), log="c")]
    assert admitted(logs, Limits(rows=110)) == {"a": 10, "b": 50, "c": 50}


def test_logs_that_are_read_to_their_end_stay_where_they_are() -> None:
    assert admitted([backlog((10, 10), first=10)], Limits(rows=5, size_bytes=1)) == {"a": 10}


def test_a_range_of_no_bytes_and_one_cut_short_by_fencing_are_taken() -> None:
    cut = [Item(1, 1, 5, NO_ENTRY, 10, 50, 0), Item(2, 1, 1, NO_ENTRY, 10, 0, 10)]
    assert admitted([Backlog("a", 0, 20, cut)], Limits(size_bytes=50)) == {"a": 20}
    assert admitted([Backlog("a", 0, 20, cut)], Limits(size_bytes=1)) == {"a": 2}


@given(wanted=st.lists(st.integers(0, 100), max_size=8), total=st.integers(0, 500))
def test_shares_are_even_and_use_up_the_total(wanted: list[int], total: int) -> None:
    shares = even_shares(wanted, total)
    assert sum(shares) == min(total, sum(wanted))
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    wanting = [s for s, w in zip(shares, wanted, strict=True) if s < w]
    assert not wanting or max(wanting) - min(wanting) <= 1
    assert not wanting or max(shares) <= max(wanting) + 1


@st.composite
def backlogs(draw: st.DrawFn) -> list[Backlog]:
    drawn = []
    for number in range(draw(st.integers(1, 4))):
        ranges = draw(
            st.lists(st.tuples(st.integers(1, 500), st.integers(0, 50_000)), min_size=1, max_size=6)
        )
        listed = items_of(*ranges, entries=draw(st.integers(1, 20)))
        end = listed[-1].end_offset
        drawn.append(
            Backlog(f"log{number}", draw(st.integers(0, end)), end, listed, draw(st.integers(0, 9)))
        )
    return drawn


@settings(deadline=None)
@given(
    logs=backlogs(),
    rows=st.none() | st.integers(1, 2_000),
    size_bytes=st.none() | st.integers(1, 100_000),
)
def test_limits_hold_and_a_batch_takes_something_while_there_is_something(
    logs: list[Backlog], rows: int | None, size_bytes: int | None
) -> None:
    ends = admitted(logs, Limits(rows, size_bytes))
    taken = {b.log: ends[b.log] - b.first_offset for b in logs}
    assert all(0 <= taken[b.log] <= b.rows for b in logs)
    assert bool(sum(taken.values())) == any(b.rows for b in logs)
    if rows is not None:
        assert sum(taken.values()) <= rows
    if size_bytes is not None:
        sizes = [b.size_bytes_to(ends[b.log]) for b in logs]
        largest_entry = max(
            (b.size_bytes_to(b.entry_end_offset) for b in logs if b.rows), default=0
        )
        assert sum(sizes) <= max(size_bytes, size_bytes + largest_entry)


@settings(max_examples=examples(50), deadline=None)
@given(logs=backlogs(), rows=st.none() | st.integers(1, 2_000), size_bytes=st.integers(1, 100_000))
def test_a_stream_comes_to_the_end_of_every_log(
    logs: list[Backlog], rows: int | None, size_bytes: int
) -> None:
    for _ in range(100_000):
        if not any(b.rows for b in logs):
            return
        ends = admitted(logs, Limits(rows, size_bytes))
        logs = [
            Backlog(b.log, ends[b.log], b.end_offset, b.items, b.waiting_since_ms) for b in logs
        ]
    raise AssertionError(logs)
