"""Names of columns and fields (ledgerlog_spark.arrow.spark_types)."""

from __future__ import annotations

import pytest

from ledgerlog_spark.arrow.spark_types import first_double, place_of


@pytest.mark.parametrize(
    ("name", "place"), [("b", 2), ("B", 1), ("c", 0), ("C", 0), ("a", None), ("", None)]
)
def test_the_very_name_goes_before_the_same_in_another_case(name: str, place: int | None) -> None:
    assert place_of(name, ["c", "B", "b"]) == place


def test_the_first_two_names_that_are_one_to_spark_are_named() -> None:
    assert first_double(["a", "b", "B", "A"]) == ("b", "B")
    assert first_double(["a", "b"]) is None
