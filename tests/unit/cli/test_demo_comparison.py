from __future__ import annotations

import pyarrow as pa
import pytest

from ledgerlog_spark.cli.demo import rows_equal

SOURCE = pa.table({"n": [1, 1, 2, None, None], "s": ["a", "a", "b", None, "x"]})


def test_rows_in_another_order_are_equal() -> None:
    assert rows_equal(SOURCE, SOURCE.take([4, 2, 0, 3, 1])) == 5


@pytest.mark.parametrize(
    ("read", "equal"),
    [
        (SOURCE.slice(1), 4),
        (SOURCE.slice(0, 0), 0),
        (pa.concat_tables([SOURCE, SOURCE]), 5),
        (pa.concat_tables([SOURCE.slice(1), SOURCE.slice(4)]), 4),
        (SOURCE.set_column(1, "s", pa.array(["a", "a", "b", None, "y"])), 4),
    ],
    ids=["one is missing", "all are missing", "twice", "one missing, one twice", "changed"],
)
def test_row_that_is_missing_or_changed_is_not_counted(read: pa.Table, equal: int) -> None:
    assert rows_equal(SOURCE, read) == equal


def test_columns_in_the_types_of_spark_compare_as_the_source_has_them() -> None:
    source = pa.table({"t": pa.array([0, 1], pa.timestamp("us", "UTC")), "s": ["a", "b"]})
    read = source.set_column(0, "t", source["t"].cast(pa.timestamp("us", "Europe/Vienna")))
    read = read.set_column(1, "s", read["s"].cast(pa.large_string()))
    assert rows_equal(source, read) == 2
