"""Which ranges are worth merging."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.state.records import Item
from ledgerlog_spark.upkeep import merge_plan
from ledgerlog_spark.upkeep.merge_plan import (
    BACKGROUND,
    MergePolicy,
    plan_merges,
)

ALL = MergePolicy(target_bytes=1_000)


def items(*sizes: int) -> list[Item]:
    return [Item(n, 1, 2, 2, 10, size, 10 * n) for n, size in enumerate(sizes)]


def planned(
    listed: list[Item], policy: MergePolicy = ALL, passwords: dict[int, bytes] | None = None
) -> list[list[int]]:
    closed = {item.ledger_id: b"" for item in listed} | (passwords or {})
    runs = plan_merges(listed, closed, policy)
    return [[item.ledger_id for item in run] for run in runs]


def test_neighbours_are_merged_up_to_the_target() -> None:
    assert planned(items(300, 300, 300, 300, 300)) == [[0, 1, 2], [3, 4]]


def test_large_ranges_are_left_alone_and_what_lies_around_them_is_merged() -> None:
    assert planned(items(10, 10, 501, 10, 10, 500)) == [[0, 1], [3, 4, 5]]


def test_single_ranges_are_left_alone() -> None:
    assert planned(items(10, 900, 10)) == []


def test_ranges_of_open_or_unknown_ledgers_are_left_alone() -> None:
    listed = items(10, 10, 10, 10, 10)
    closed = dict.fromkeys((0, 1, 3, 4), b"")
    runs = plan_merges(listed, closed, ALL)
    assert [[i.ledger_id for i in run] for run in runs] == [[0, 1], [3, 4]]


def test_ranges_of_other_schemas_or_passwords_are_not_mixed() -> None:
    listed = items(10, 10, 10, 10)
    listed[2:] = [replace(item, schema_id=1) for item in listed[2:]]
    assert planned(listed) == [[0, 1], [2, 3]]
    secret = {0: b"secret", 1: b"secret"}
    assert planned(items(10, 10, 10, 10), passwords=secret) == [[0, 1], [2, 3]]


def test_a_run_has_at_most_so_many_ranges_and_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_plan, "RUN_LEDGERS_MAX", 3)
    assert planned(items(1, 1, 1, 1, 1, 1)) == [[0, 1, 2], [3, 4, 5]]
    monkeypatch.setattr(merge_plan, "RUN_RANGES_MAX", 2)
    assert planned(items(1, 1, 1, 1, 1)) == [[0, 1], [2, 3]]


def test_background_merging_writes_each_row_again_a_few_times_however_long_the_log_lives() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(4_000):
        sizes.append(10_000)
        listed = items(*sizes[-500:])
        first = len(sizes) - len(listed)
        if len(sizes) % 16:
            continue
        closed = {item.ledger_id: b"" for item in listed}
        for run in reversed(plan_merges(listed, closed, BACKGROUND)):
            at, end = first + run[0].ledger_id, first + run[-1].ledger_id + 1
            written += sum(sizes[at:end])
            sizes[at:end] = [sum(sizes[at:end])]
    assert sum(sizes) == 4_000 * 10_000
    assert len(sizes) < 100
    assert written <= 5 * sum(sizes)


@given(
    st.lists(st.integers(1, 600), max_size=60),
    st.integers(2, 5),
    st.integers(1, 4),
)
def test_runs_are_neighbours_within_the_policy(
    sizes: list[int], ranges_min: int, growth: int
) -> None:
    policy = MergePolicy(target_bytes=1_000, ranges_min=ranges_min, growth=growth)
    runs = planned(items(*sizes), policy)
    assert [ledger for run in runs for ledger in run] == sorted({i for run in runs for i in run})
    for run in runs:
        assert run == list(range(run[0], run[-1] + 1))
        taken = [sizes[ledger] for ledger in run]
        assert len(run) >= ranges_min
        assert max(taken) * growth <= sum(taken) <= 1_000


@pytest.mark.parametrize("wrong", [{"target_bytes": 0}, {"ranges_min": 1}, {"growth": 0}])
def test_policy_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        MergePolicy(**wrong)
