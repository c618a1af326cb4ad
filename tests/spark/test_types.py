"""Every type that Spark exchanges with a Python source, written and read back."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as spark_types

from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.errors import LogNotFoundError, SchemaMismatchError
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

INNER = spark_types.StructType(
    [
        spark_types.StructField("a", spark_types.LongType(), nullable=False),
        spark_types.StructField("b", spark_types.ArrayType(spark_types.StringType())),
    ]
)
MOMENT = datetime(2024, 2, 29, 23, 59, 58, 999_999)  # noqa: DTZ001 - Spark's local time
CASES: list[tuple[str, spark_types.DataType, list[Any]]] = [
    ("boolean", spark_types.BooleanType(), [True, False, None]),
    ("byte", spark_types.ByteType(), [-128, 127, None]),
    ("short", spark_types.ShortType(), [-(2**15), 2**15 - 1, None]),
    ("integer", spark_types.IntegerType(), [-(2**31), 2**31 - 1, None]),
    ("long", spark_types.LongType(), [-(2**63), 2**63 - 1, None]),
    ("float", spark_types.FloatType(), [1.5, float("-inf"), None]),
    ("double", spark_types.DoubleType(), [0.1, float("inf"), None]),
    ("decimal", spark_types.DecimalType(38, 10), [Decimal("-1.0000000001"), None]),
    ("small decimal", spark_types.DecimalType(5, 2), [Decimal("999.99"), None]),
    ("string", spark_types.StringType(), ["", "é\U0001f600", None]),
    ("binary", spark_types.BinaryType(), [bytearray(b"\x00\xff"), bytearray(), None]),
    ("date", spark_types.DateType(), [date(1, 1, 1), date(9999, 12, 31), None]),
    ("timestamp", spark_types.TimestampType(), [MOMENT, None]),
    ("timestamp_ntz", spark_types.TimestampNTZType(), [MOMENT, None]),
    ("time", spark_types.TimeType(6), [time(23, 59, 59, 999_999), None]),
    ("interval", spark_types.DayTimeIntervalType(), [timedelta(days=-1, microseconds=1), None]),
    ("void", spark_types.NullType(), [None]),
    ("empty array", spark_types.ArrayType(spark_types.NullType(), containsNull=False), [[], None]),
    ("array", spark_types.ArrayType(spark_types.LongType()), [[1, None], [], None]),
    (
        "strict array",
        spark_types.ArrayType(spark_types.LongType(), containsNull=False),
        [[1, 2], []],
    ),
    (
        "map",
        spark_types.MapType(spark_types.StringType(), spark_types.DoubleType()),
        [{"a": 1.0, "b": None}, {}, None],
    ),
    ("struct", INNER, [spark_types.Row(a=1, b=["x", None]), None]),
    (
        "nested",
        spark_types.ArrayType(spark_types.MapType(spark_types.IntegerType(), INNER)),
        [[{1: spark_types.Row(a=1, b=None)}], [None], None],
    ),
]


@pytest.mark.parametrize(("_", "data_type", "values"), CASES, ids=[case[0] for case in CASES])
def test_a_value_of_each_type_comes_back(
    _: str,
    data_type: spark_types.DataType,
    values: list[Any],
    spark: SparkSession,
    log_name: str,
    save: Callable[..., None],
) -> None:
    schema = spark_types.StructType(
        [
            spark_types.StructField("n", spark_types.IntegerType(), nullable=False),
            spark_types.StructField("value", data_type),
        ]
    )
    frame = spark.createDataFrame([(n, value) for n, value in enumerate(values)], schema)
    save(frame)
    got = load(spark, log_name)
    assert rows_of(got) == rows_of(frame)
    assert _without_nullability(got.schema.jsonValue()) == _without_nullability(schema.jsonValue())


def _without_nullability(value: Any) -> Any:
    """The type without nullability, because all columns of a log are nullable."""
    if isinstance(value, dict):
        dropped = {"nullable", "containsNull", "valueContainsNull"}
        return {k: _without_nullability(v) for k, v in value.items() if k not in dropped}
    if isinstance(value, list):
        return [_without_nullability(item) for item in value]
    return value


class Pair(spark_types.UserDefinedType):
    """A user-defined type, like those of ML."""

    @classmethod
    def module(cls) -> str:
        return __name__

    @classmethod
    def sqlType(cls) -> spark_types.DataType:  # noqa: N802 - Spark's name
        return spark_types.ArrayType(spark_types.DoubleType())


STORED_AS_OTHERS = {
    "VariantType": "test_variants_come_back",
    "CharType": "test_comments_char_and_ml_attributes_stay",
    "VarcharType": "test_comments_char_and_ml_attributes_stay",
}
"""Types that tests with these names write."""
REFUSED: list[tuple[str, spark_types.DataType]] = [
    ("interval year to month", spark_types.YearMonthIntervalType()),
    ("interval", spark_types.CalendarIntervalType()),
    ("udt", Pair()),
    ("void", spark_types.MapType(spark_types.NullType(), spark_types.LongType())),
    ("geometry(OGC:CRS84)", spark_types.GeometryType(4326)),
    ("geography(OGC:CRS84, SPHERICAL)", spark_types.GeographyType(4326)),
]


def test_every_type_of_spark_is_stored_or_refused() -> None:
    abstract = {"DataType", "AtomicType", "NumericType", "IntegralType", "FractionalType",
                "DatetimeType", "AnyTimeType", "SpatialType", "AnsiIntervalType",
                "StructField"}  # fmt: skip
    known = {
        name
        for name, kind in vars(spark_types).items()
        if isinstance(kind, type) and issubclass(kind, spark_types.DataType)
    }
    tested = {type(data_type).__name__ for _, data_type, _ in CASES}
    refused = {type(data_type).__name__ for _, data_type in REFUSED} | {"UserDefinedType"}
    assert known - abstract == (tested | refused | set(STORED_AS_OTHERS)) & known


@pytest.mark.parametrize("place", ["{}", "array<{}>", "struct<a: {}>"])
@pytest.mark.parametrize(("spelled", "data_type"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_type_that_is_refused_is_named_before_anything_is_written(
    spelled: str, data_type: spark_types.DataType, place: str, cluster: Cluster, log_name: str
) -> None:
    kinds = {
        "{}": data_type,
        "array<{}>": spark_types.ArrayType(data_type),
        "struct<a: {}>": spark_types.StructType([spark_types.StructField("a", data_type)]),
    }
    schema = spark_types.StructType([spark_types.StructField("c", kinds[place])])
    options = {"path": log_name, "metadataServiceUri": cluster.metadata_service_uri}
    for writer in ("writer", "streamWriter"):
        with pytest.raises(SchemaMismatchError, match="no Arrow form") as caught:
            getattr(LedgerDataSource(options), writer)(schema, overwrite=False)
        assert caught.value.got == spelled
    with pytest.raises(LogNotFoundError):
        LedgerDataSource(options).schema()


def test_a_refused_type_reaches_the_user_of_spark(
    spark: SparkSession, log_name: str, save: Callable[..., None]
) -> None:
    with pytest.raises(Exception, match="column 'c' has the type interval year"):
        save(spark.sql("SELECT INTERVAL '1' YEAR AS c"))
    with pytest.raises(Exception, match="LogNotFoundError"):
        load(spark, log_name)


def test_all_types_share_one_row(
    spark: SparkSession, log_name: str, save: Callable[..., None]
) -> None:
    schema = spark_types.StructType(
        [
            spark_types.StructField(f"c{place}", data_type)
            for place, (_, data_type, _) in enumerate(CASES)
        ]
    )
    frame = spark.createDataFrame([tuple(values[0] for _, _, values in CASES)], schema)
    save(frame)
    assert rows_of(load(spark, log_name)) == rows_of(frame)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_columns_of_more_than_64_kib_come_back(
    spark: SparkSession, log_name: str, save: Callable[..., None], compression: str
) -> None:
    """Arrow compresses such columns with LZ4 blocks that refer to earlier blocks."""
    rows = 20_000
    written = spark.range(0, rows, 1, 1).selectExpr(
        "id", "id % 3 AS k", "concat('text ', id % 977, repeat('x', id % 50)) AS s"
    )
    save(written, compression=compression)
    found = load(spark, log_name)
    assert found.count() == rows
    assert found.exceptAll(written).count() == 0


def test_variants_come_back(spark: SparkSession, log_name: str, save: Callable[..., None]) -> None:
    frame = spark.sql("""SELECT parse_json('{"a": [1, null]}') AS v UNION ALL SELECT NULL""")
    save(frame)
    got = load(spark, log_name).selectExpr("to_json(v) AS v", "v:a[0]::int AS first")
    assert set(rows_of(got)) == {(None, None), ('{"a":[1,null]}', 1)}


def test_timestamps_of_another_session_zone_are_the_same_moments(
    spark: SparkSession, log_name: str, save: Callable[..., None]
) -> None:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    try:
        spark.conf.set(key, "America/Los_Angeles")
        save(spark.sql("SELECT TIMESTAMP'2024-07-01 05:00:00 America/Los_Angeles' AS at"))
        spark.conf.set(key, "Asia/Tokyo")
        got = load(spark, log_name).selectExpr("CAST(at AS string)", "unix_seconds(at)")
        assert rows_of(got) == [("2024-07-01 21:00:00", 1719835200)]
    finally:
        spark.conf.set(key, str(before))
