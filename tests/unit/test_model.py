"""Values: impossible quorums are refused, and each fragment has its own entries."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Position, Quorum


@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 2, 3), (3, 3, 0), (0, 0, 0), (2, 2, -1)])
def test_quorum_out_of_order_is_refused_with_its_numbers(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Quorum(*sizes)
    assert caught.value.ensemble_size == sizes[0]


@pytest.mark.parametrize("sizes", [(3.0, 3, 2), ("3", 3, 2), (3, None, 2), (1, 1, True)])
def test_quorum_of_what_is_no_int_is_refused_by_name(sizes: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must be of type int, got (3\.0|'3'|None|True)$"):
        Quorum(*sizes)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True), st.integers(0, 60))
def test_fragment_of_entry_is_the_last_one_that_starts_at_or_before_it(
    firsts: list[int], entry_id: int
) -> None:
    starts = [0, *sorted(firsts)]
    metadata = LedgerMetadata(
        Quorum(1, 1, 1), tuple(Fragment(first, (f"b{first}",)) for first in starts)
    )
    owner = metadata.fragment_of(entry_id)
    assert owner.first_entry_id == max(s for s in starts if s <= entry_id)


def test_closed_metadata_keeps_everything_else() -> None:
    metadata = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a", "b", "c")),), password=b"x")
    closed = metadata.in_recovery().closed(last_entry_id=4, length=10)
    assert closed.state is LedgerState.CLOSED
    assert (closed.last_entry_id, closed.length, closed.password) == (4, 10, b"x")
    assert "x" not in repr(closed)


def test_positions_are_ordered_by_offset_wherever_the_records_lie() -> None:
    early, late = Position("log", 3, 9, 0), Position("log", 5, 7, 1)
    assert early < late
    assert late >= early
    assert max(late, early) is late
    assert Position("log", 3) == early
    assert len({early, Position("log", 3, 1, 1)}) == 1
    assert pickle.loads(pickle.dumps(late)).entry_id == 1


def test_positions_of_different_logs_cannot_be_compared() -> None:
    with pytest.raises(TypeError):
        _ = Position("log", 3) < Position("other", 5)
    assert Position("log", 3) != Position("other", 3)
