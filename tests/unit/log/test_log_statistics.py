"""Bounds in the log's list: small, and never wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.protocol.log.state.statistics import (
    BOUND_SIZE_BYTES_MAX,
    ColumnStatistics,
    decode_statistics,
    encode_statistics,
    shorten_statistics,
)
from tests.fixtures.examples import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
values = st.one_of(
    st.lists(st.integers(-(2**130), 2**130), min_size=1),
    st.lists(st.floats(), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(texts, min_size=1),
    st.lists(st.binary(max_size=60), min_size=1),
)


def column(place: int, of: list[object]) -> ColumnStatistics:
    return ColumnStatistics(place, 3, min(of), max(of))  # type: ignore[type-var, arg-type]


@given(st.lists(values, min_size=1, max_size=40), st.sampled_from([64, 1024]))
@settings(max_examples=examples(50), deadline=None)
def test_stored_bounds_enclose_every_value_and_fit(columns: list[list[object]], size: int) -> None:
    stored = encode_statistics([column(n, c) for n, c in enumerate(columns)], size_bytes_max=size)
    assert len(stored) <= size
    for read in decode_statistics(stored):
        assert read.null_count == 3
        for value in columns[read.column]:
            if isinstance(value, float) and math.isnan(value):
                assert read.minimum is None or not math.isnan(read.minimum)  # type: ignore[arg-type]
                continue
            assert read.minimum is None or read.minimum <= value  # type: ignore[operator]
            assert read.maximum is None or read.maximum >= value  # type: ignore[operator]
        if read.is_minimum_exact and read.minimum is not None:
            assert read.minimum in columns[read.column]
        if read.is_maximum_exact and read.maximum is not None:
            assert read.maximum in columns[read.column]
        for bound in (read.minimum, read.maximum):
            if isinstance(bound, str | bytes):
                data = bound.encode() if isinstance(bound, str) else bound
                assert len(data) <= BOUND_SIZE_BYTES_MAX


@given(st.lists(values, max_size=20), st.integers(0, 200))
@settings(max_examples=examples(50), deadline=None)
def test_shortened_statistics_are_the_leading_columns(
    columns: list[list[object]], size: int
) -> None:
    stored = encode_statistics([column(n, c) for n, c in enumerate(columns)], size_bytes_max=1024)
    short = shorten_statistics(stored, size_bytes_max=size)
    assert len(short) <= size
    everything = decode_statistics(stored)
    kept = decode_statistics(short)
    assert repr(everything[: len(kept)]) == repr(kept)
    if len(kept) < len(everything):
        longer = encode_statistics(everything[: len(kept) + 1], size_bytes_max=1024)
        assert len(longer) > size


@given(st.binary(max_size=100))
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_are_statistics_or_a_format_error(data: bytes) -> None:
    try:
        decode_statistics(data)
    except WireFormatError:
        return


@pytest.mark.parametrize(
    ("value", "raised"),
    [
        ("a" * 40, "a" * 31 + "b"),
        ("a" * 31 + "\U0010ffff" * 3, "a" * 30 + "b"),
        ("\U0010ffff" * 20, None),
        ("\ud7ff" * 20, "\ud7ff" * 9 + "\ue000"),
        (b"\x01" * 31 + b"\xff" * 9, b"\x01" * 30 + b"\x02"),
        (b"\xff" * 40, None),
    ],
)
def test_cut_maximum_is_raised_to_the_next_that_fits(value: object, raised: object) -> None:
    stored = encode_statistics([ColumnStatistics(0, 0, value, value)], size_bytes_max=1024)  # type: ignore[arg-type]
    (read,) = decode_statistics(stored)
    assert read.maximum == raised
    assert not read.is_maximum_exact
