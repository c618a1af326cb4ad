"""Placement keeps the indexes, and records failed bookies."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import NotEnoughBookiesError
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.placement import choose_ensemble, replace_failed


def test_an_ensemble_is_the_first_distinct_candidates() -> None:
    assert choose_ensemble(Quorum(3, 2, 2), ["b2", "b0", "b2", "b1", "b3"]) == ("b2", "b0", "b1")


def test_too_few_candidates_name_both_numbers() -> None:
    with pytest.raises(NotEnoughBookiesError) as caught:
        choose_ensemble(Quorum(3, 2, 2), ["b2", "b2", "b1"])
    assert (caught.value.wanted, caught.value.available) == (3, 2)


def test_a_replacement_takes_the_index_of_the_failed_bookie() -> None:
    found = replace_failed(("b0", "b1", "b2"), [1], ["b0", "b3"], {})
    assert found.ensemble == ("b0", "b3", "b2")
    assert (found.replaced, found.unreplaced) == ((1,), ())


def test_a_bookie_that_failed_before_is_the_last_choice() -> None:
    found = replace_failed(("b0", "b1", "b2"), [1], ["b4", "b5", "b3"], {"b4": 2, "b5": 1})
    assert found.ensemble == ("b0", "b3", "b2")
    found = replace_failed(("b0", "b1", "b2"), [1], ["b4", "b5"], {"b4": 2, "b5": 1})
    assert found.ensemble == ("b0", "b5", "b2")


def test_a_failed_bookie_never_moves_to_another_index() -> None:
    found = replace_failed(("b0", "b1", "b2"), [0, 1], ["b1", "b0", "b2", "b3"], {})
    assert found.ensemble == ("b3", "b1", "b2")
    assert (found.replaced, found.unreplaced) == ((0,), (1,))
