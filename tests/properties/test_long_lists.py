"""The reads of truncation, retention and expiry in a very long log."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.expiry import STEP_ITEMS_MAX, Expired, ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import ITEMS_AT_ONCE, PageSizes, RetentionMachine
from ledgerlog_spark.protocol.log.change.truncate import Truncated, TruncateMachine
from ledgerlog_spark.protocol.log.read.versions import oldest_of
from ledgerlog_spark.protocol.log.state.pages import (
    PAGE_BODY_SIZE_BYTES_MAX,
    PageWriter,
    append,
    pages_to_merge,
)
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogHead,
    Paged,
    PageRef,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS
from tests.unit.log.log_values import OneLog, decoded, new_head, token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.state.rows import RecordKind

T = TypeVar("T")

RANGES = 100_000
ROWS = 10
SIZE_BYTES = 1_000
MINUTE_MS = 60_000
REQUESTS_MAX = 30
"""Maximum number of requests of one step or pass; each page counts as one."""


class LongLog(OneLog):
    """A log that counts requests; each page counts as one."""

    def __init__(self, head: LogHead, pages: dict[tuple[str, int], bytes]) -> None:
        super().__init__(head)
        self.pages = pages
        self.requests = 0
        self.history_read: list[PageRef] = []

    def reply(self, ask: Any) -> Any:
        self.requests += len(ask.pages) if isinstance(ask, m.ReadPages) else 1
        if isinstance(ask, m.ReadPages):
            self.history_read += [page.ref for page in ask.pages if page.kind is HISTORY]
        return super().reply(ask)

    def cost(self, machine: Any) -> tuple[Any, int]:
        before = self.requests
        return self.run(machine), self.requests - before


def paged(
    kind: RecordKind[T],
    records: Sequence[T],
    pages: dict[tuple[str, int], bytes],
    first: int,
    step: int = 2_000,
) -> Paged[T]:
    """The sequence after commits of `step` records and one of 20."""
    found: Paged[T] = Paged()
    newest = len(records) - 20
    cuts = (*range(0, newest, step), newest, len(records))
    for number, (place, end) in enumerate(itertools.pairwise(cuts), first):
        some = records[place:end]
        loaded = {
            (page.ref.token, page.ref.number): decoded(
                page.kind, pages[page.ref.token, page.ref.number]
            )
            for page in pages_to_merge(kind, found, some)
        }
        writer = PageWriter(token(number << 16))
        found = append(kind, found, some, writer, loaded)
        pages |= {(writer.token, n): page for n, page in enumerate(writer.pages)}
    return found


@pytest.fixture(scope="module")
def stored() -> tuple[LogHead, dict[tuple[str, int], bytes]]:
    """100,000 ranges and versions, one each minute. Every version except the first is an append."""
    pages: dict[tuple[str, int], bytes] = {}
    items = [
        Item(n, 1, 9, NO_ENTRY, ROWS, SIZE_BYTES, n * ROWS, 0, bytes(64), (n + 1) * MINUTE_MS)
        for n in range(RANGES)
    ]
    versions = [
        VersionInterval(n, 0, n * ROWS, n * MINUTE_MS + 1, token(7)) for n in range(RANGES + 1)
    ]
    head = replace(
        new_head()[0],
        version=RANGES,
        end_offset=RANGES * ROWS,
        commit_time_ms=RANGES * MINUTE_MS + 1,
        items=paged(ITEMS, items, pages, 1_000),
        history=paged(HISTORY, versions, pages, 5_000),
    )
    assert head.items.index, "it has to have index pages"
    assert head.items.recent, "and items in the head"
    return head, pages


@pytest.fixture
def log(stored: tuple[LogHead, dict[tuple[str, int], bytes]]) -> LongLog:
    head, pages = stored
    long = LongLog(head, dict(pages))
    long.now_ms = RANGES * MINUTE_MS + MINUTE_MS
    return long


def fresh(log: LongLog) -> str:
    return token(log.new_number())


def expire(log: LongLog, retention_ms: int | None) -> tuple[Expired, int]:
    machine = ExpiryMachine("flights", version_retention_ms=retention_ms, token=fresh(log))
    return log.cost(machine)


def truncate(log: LongLog, offset: int) -> tuple[Truncated, int]:
    return log.cost(TruncateMachine("flights", offset=offset, token=fresh(log)))


def retain(log: LongLog, ms: int, size_bytes: int, sizes: PageSizes) -> tuple[Truncated, int]:
    machine = RetentionMachine(
        "flights",
        retention_ms=ms,
        retention_bytes=size_bytes,
        token=fresh(log),
        page_sizes=sizes,
    )
    done, cost = log.cost(machine)
    finish(log, done)
    return replace(done, next_due_ms=machine.next_due_ms), cost


def finish(log: LongLog, done: Truncated | Expired) -> None:
    """The steps that `Log.retain` adds."""
    while not done.is_complete:
        done, cost = expire(log, None)
        assert cost <= REQUESTS_MAX


def test_a_step_of_a_truncation_reads_a_few_pages_from_the_old_end(log: LongLog) -> None:
    done: Truncated | Expired
    done, cost = truncate(log, (RANGES - 1) * ROWS)
    assert cost <= REQUESTS_MAX
    assert (done.is_complete, len(done.unlisted)) == (False, STEP_ITEMS_MAX)
    steps = 1
    unlisted = list(done.unlisted)
    while not done.is_complete:
        done, cost = expire(log, None)
        assert cost <= REQUESTS_MAX
        unlisted += done.unlisted
        steps += 1
    assert (unlisted, steps) == (list(range(RANGES - 1)), RANGES // STEP_ITEMS_MAX)
    assert [item.ledger_id for item in log.items()] == [RANGES - 1]


def test_a_truncation_that_has_nothing_to_do_reads_as_little(log: LongLog) -> None:
    done, cost = truncate(log, 0)
    assert (done.unlisted, log.heads_written) == ((), 0)
    assert cost <= REQUESTS_MAX
    with pytest.raises(ConfigurationError):
        truncate(log, RANGES * ROWS + 1)


def test_versions_expire_in_steps_of_what_a_few_pages_hold(log: LongLog) -> None:
    kept = 50
    versions = steps = 0
    while True:
        done, cost = expire(log, kept * MINUTE_MS)
        assert cost <= REQUESTS_MAX
        steps += done.is_changed
        if done.is_complete:
            break
        assert log.head.value.oldest_version > versions
        versions = log.head.value.oldest_version
    assert 1 < steps < 30
    assert log.head.value.oldest_version == RANGES - kept
    assert len(log.items()) == RANGES, "no version ends a row of an append"


def test_a_truncation_within_older_versions_finds_the_one_that_begins_there(log: LongLog) -> None:
    """Every version begins at the end of the previous one, as after overwrites."""
    pages = log.pages
    versions = [
        VersionInterval(n, n * ROWS, (n + 1) * ROWS, n * MINUTE_MS + 1, token(7))
        for n in range(RANGES)
    ]
    head = replace(
        log.head.value,
        version=RANGES - 1,
        start_offset=(RANGES - 1) * ROWS,
        history=paged(HISTORY, versions, pages, 9_000, step=20_000),
    )
    log.head = replace(log.head, value=head)
    done, cost = truncate(log, 10_005)
    assert (done.oldest_version, len(done.unlisted), done.is_complete) == (1_001, 1_000, False)
    assert cost <= REQUESTS_MAX
    log.history_read.clear()
    done, _ = truncate(log, 600_000)
    assert done.oldest_version == 60_000
    assert len(log.history_read) == len(set(log.history_read)) > 1, "each page is read once"


def test_retention_by_age_looks_at_some_of_the_oldest_and_says_that_more_is_due(
    log: LongLog,
) -> None:
    done, cost = retain(log, 1_000 * MINUTE_MS, -1, {})
    assert cost <= REQUESTS_MAX
    assert ITEMS_AT_ONCE * ROWS <= done.start_offset < 2 * ITEMS_AT_ONCE * ROWS
    assert done.next_due_ms == log.now_ms
    passes = 1
    while done.next_due_ms == log.now_ms:
        done, cost = retain(log, 1_000 * MINUTE_MS, -1, {})
        assert cost <= REQUESTS_MAX
        passes += 1
    # The newest row of range n came at minute n + 1. The current minute is 100,001.
    assert done.start_offset == (RANGES - 1_000) * ROWS
    assert done.next_due_ms == log.now_ms + 1
    assert passes < RANGES / ITEMS_AT_ONCE


def test_retention_of_what_is_young_enough_reads_a_few_pages(log: LongLog) -> None:
    done, cost = retain(log, RANGES * MINUTE_MS * 2, -1, {})
    assert (done.unlisted, cost <= REQUESTS_MAX, log.heads_written) == ((), True, 0)
    assert done.next_due_ms == MINUTE_MS + RANGES * MINUTE_MS * 2 + 1


def test_retention_by_size_counts_each_page_once(log: LongLog) -> None:
    sizes: PageSizes = {}
    done, cold = retain(log, -1, RANGES * SIZE_BYTES, sizes)
    assert (done.start_offset, cold > REQUESTS_MAX) == (0, True)
    assert sum(sizes.values()) <= RANGES * SIZE_BYTES
    done, cost = retain(log, -1, RANGES * SIZE_BYTES, sizes)
    assert (done.start_offset, cost <= REQUESTS_MAX) == (0, True)
    done, cost = retain(log, -1, (RANGES - 1_500) * SIZE_BYTES, sizes)
    assert (done.start_offset, cost <= REQUESTS_MAX) == (1_500 * ROWS, True)
    # The page that begins in an older version counts only from the newest version's start.
    done, cost = retain(log, -1, (RANGES - 1_500) * SIZE_BYTES, sizes)
    assert (done.start_offset, cost <= REQUESTS_MAX) == (1_500 * ROWS, True)
    for _ in range(2):
        done, cost = retain(log, -1, (RANGES - 1_501) * SIZE_BYTES, sizes)
        assert (done.start_offset, cost <= REQUESTS_MAX) == (1_501 * ROWS, True)
    assert set(sizes) <= set(log.pages)


def test_retention_by_size_never_drops_the_newest_range_of_a_long_log(log: LongLog) -> None:
    sizes: PageSizes = {}
    done, _ = retain(log, -1, 1, sizes)
    assert done.start_offset >= ITEMS_AT_ONCE * ROWS
    for _ in range(RANGES // ITEMS_AT_ONCE):
        done, _ = retain(log, -1, 1, sizes)
    assert done.start_offset == (RANGES - 1) * ROWS


def test_a_ledger_that_is_listed_again_far_behind_is_marked_and_marked_again() -> None:
    """A step does not read that far. The sweeper reads the whole list before it deletes."""
    log = OneLog()
    pages: dict[tuple[str, int], bytes] = {}
    items = [Item(n % 15_000, 1, 9, NO_ENTRY, 1, 1, n) for n in range(30_000)]
    head = replace(log.head.value, end_offset=30_000, items=paged(ITEMS, items, pages, 100))
    log.head, log.pages = replace(log.head, value=head), pages
    done = log.run(TruncateMachine("flights", offset=29_999, token=token(log.new_number())))
    assert done.unlisted == tuple(range(1_000))
    while not done.is_complete:
        machine = ExpiryMachine("flights", version_retention_ms=None, token=token(log.new_number()))
        done = log.run(machine)
    assert set(log.unlisted[-14_999:]) == set(range(14_999))
    assert log.unlisted.count(3) == 2
    assert [item.ledger_id for item in log.items()] == [14_999]


def test_page_that_is_full_is_neither_read_nor_written_again() -> None:
    item = Item(1, 0, 0, NO_ENTRY, ROWS, SIZE_BYTES, 0, 0, bytes(range(200)))
    items = [replace(item, first_offset=n * ROWS) for n in range(3_000)]
    writer = PageWriter(token(1))
    full = append(ITEMS, Paged(), items, writer, {})
    assert len(full.pages) > 1
    assert full.pages[-2].size_bytes > PAGE_BODY_SIZE_BYTES_MAX - 1_000
    behind = [replace(item, first_offset=(3_000 + n) * ROWS) for n in range(1_000)]
    only_full = replace(full, pages=full.pages[:-1])
    assert pages_to_merge(ITEMS, only_full, behind) == []
    longer = append(ITEMS, only_full, behind, PageWriter(token(2)), {})
    assert longer.pages[: len(only_full.pages)] == only_full.pages


@pytest.mark.parametrize("count", [1, 1_000, 2_500, 99_000, 200_000])
def test_the_oldest_items_are_a_whole_beginning_of_the_list(log: LongLog, count: int) -> None:
    walk = oldest_of(log.head.value, count)
    while walk.wanted:
        walk.feed([log.page(page) for page in walk.wanted])
    found = walk.records()
    assert [item.ledger_id for item in found] == list(range(len(found)))
    assert len(found) == RANGES or (walk.is_cut and len(found) > count)
    assert walk.is_cut == (len(found) < RANGES)


LEDGER_RANGES = 20_000


def partly_untimed(count: int, unknown: int) -> list[Item]:
    """Ranges, of which the first `unknown` ones have no times."""
    return [
        Item(n, 1, 9, NO_ENTRY, ROWS, SIZE_BYTES, n * ROWS, 0, bytes(64),
             0 if n < unknown else (n + 1) * MINUTE_MS)
        for n in range(count)
    ]  # fmt: skip


def listed(items: Sequence[Item], start: int = 0) -> LongLog:
    """A log of these ranges. The last overwrite replaced the first `start` rows."""
    pages: dict[tuple[str, int], bytes] = {}
    end_offset = items[-1].end_offset
    versions = [
        VersionInterval(0, 0, end_offset, 1, token(7)),
        VersionInterval(1, start * ROWS, end_offset, 2, token(7)),
    ]
    head = replace(
        new_head()[0],
        version=1,
        start_offset=start * ROWS,
        end_offset=end_offset,
        commit_time_ms=2,
        items=paged(ITEMS, items, pages, 1_000),
        history=paged(HISTORY, versions, pages, 5_000),
    )
    log = LongLog(head, pages)
    log.now_ms = (len(items) + 1) * MINUTE_MS
    return log


def retain_all(log: LongLog, ms: int, size_bytes: int) -> int:
    """Run passes until nothing is due, and return the number of passes."""
    sizes: PageSizes = {}
    for passes in range(1, 10):
        done, _ = retain(log, ms, size_bytes, sizes)
        if done.next_due_ms != log.now_ms:
            return passes
    raise AssertionError(log.head.value.start_offset)


@cache
def items_of_two_ledgers(unknown: tuple[int, int]) -> tuple[LogHead, dict[tuple[str, int], bytes]]:
    items = [
        Item(n // LEDGER_RANGES, n + 1, n + 1, NO_ENTRY, ROWS, SIZE_BYTES, n * ROWS, 0,
             bytes(64), 0 if n in range(*unknown) else (n + 1) * MINUTE_MS)
        for n in range(30_000)
    ]  # fmt: skip
    log = listed(items, start=9_000)
    return log.head.value, log.pages


def of_two_ledgers(unknown: tuple[int, int]) -> LongLog:
    """A log of 30,000 ranges in two ledgers, of which those in `unknown` have no times."""
    head, pages = items_of_two_ledgers(unknown)
    log = LongLog(head, dict(pages))
    log.now_ms = 30_001 * MINUTE_MS
    return log


@pytest.mark.parametrize("size_bytes", [-1, 10**12], ids=["age", "age-and-size"])
@pytest.mark.parametrize("unknown", [(0, 0), (5_000, 12_000)], ids=["timed", "some-timed"])
def test_retention_goes_on_while_all_it_looks_at_is_due_and_its_ledger_goes_on(
    size_bytes: int, unknown: tuple[int, int]
) -> None:
    """By size, it reads further than by age, because the versions begin far apart."""
    log = of_two_ledgers(unknown)
    retain_all(log, 5 * MINUTE_MS, size_bytes)
    assert log.head.value.start_offset >= LEDGER_RANGES * ROWS
    assert log.head.value.oldest_offset == log.head.value.start_offset
    assert 0 in log.unlisted


@pytest.mark.parametrize("unknown", [5_000, 12_000])
def test_ranges_that_do_not_say_when_they_came_go_with_the_first_that_does(unknown: int) -> None:
    log = listed(partly_untimed(30_000, unknown))
    log.now_ms = (unknown + 5) * MINUTE_MS
    assert retain_all(log, 5 * MINUTE_MS, -1) == 1
    assert log.heads_written == 0, "the first that says when is too young"
    log.now_ms = 30_001 * MINUTE_MS
    retain_all(log, 500 * MINUTE_MS, -1)
    assert log.head.value.start_offset == (30_000 - 500) * ROWS


def test_ranges_that_do_not_say_when_they_came_are_read_once() -> None:
    unknown = 25_000
    log = listed(partly_untimed(40_000, unknown))
    log.now_ms = (unknown + 5) * MINUTE_MS
    costs, untimed_to = [], 0
    for _ in range(3):
        machine = RetentionMachine(
            "flights",
            retention_ms=10 * MINUTE_MS,
            retention_bytes=-1,
            token=fresh(log),
            untimed_to=untimed_to,
        )
        done, cost = log.cost(machine)
        assert done.unlisted == ()
        untimed_to = machine.untimed_to
        costs.append(cost)
    assert costs[1] == costs[2] < costs[0] - unknown // ITEMS_AT_ONCE, costs
    log.now_ms = 40_001 * MINUTE_MS
    machine = RetentionMachine(
        "flights",
        retention_ms=14_000 * MINUTE_MS,
        retention_bytes=-1,
        token=fresh(log),
        untimed_to=untimed_to,
    )
    done, _ = log.cost(machine)
    finish(log, done)
    assert log.head.value.start_offset == (40_000 - 14_000) * ROWS


@pytest.mark.parametrize(("ms", "size_bytes"), [(500 * MINUTE_MS, -1), (-1, 20_000 * SIZE_BYTES)])
def test_ranges_that_are_not_read_again_are_marked_when_they_go(ms: int, size_bytes: int) -> None:
    unknown = 25_000
    log = listed(partly_untimed(30_000, unknown))
    log.now_ms = (unknown + 5) * MINUTE_MS
    looking = RetentionMachine(
        "flights", retention_ms=500 * MINUTE_MS, retention_bytes=-1, token=fresh(log)
    )
    done, _ = log.cost(looking)
    assert (done.unlisted, looking.untimed_to > ITEMS_AT_ONCE * ROWS) == ((), True)
    log.now_ms = 30_001 * MINUTE_MS
    dropping = RetentionMachine(
        "flights",
        retention_ms=ms,
        retention_bytes=size_bytes,
        token=fresh(log),
        untimed_to=looking.untimed_to,
    )
    done, _ = log.cost(dropping)
    finish(log, done)
    assert log.head.value.oldest_offset == log.head.value.start_offset > 0
    assert sorted(log.unlisted) == list(range(log.head.value.oldest_offset // ROWS))


def test_retention_by_size_says_that_more_is_due(log: LongLog) -> None:
    assert 1 < retain_all(log, -1, 60_000 * SIZE_BYTES) < 40_000 / ITEMS_AT_ONCE + 1
    assert log.head.value.start_offset == 40_000 * ROWS
