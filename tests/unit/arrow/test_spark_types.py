"""Spark's types and Arrow's (ledgerlog_spark.arrow.spark_types)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from ledgerlog_spark.arrow.schema_evolution import storable
from ledgerlog_spark.arrow.spark_types import arrow_schema_of, schema_json_of, struct_of
from ledgerlog_spark.errors import SchemaMismatchError

INNER = spark.StructType(
    [
        spark.StructField("a", spark.LongType(), nullable=False),
        spark.StructField("b", spark.ArrayType(spark.StringType(), containsNull=False)),
    ]
)
TYPES = [
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.DecimalType(38, 18),
    spark.DecimalType(5, 0),
    spark.StringType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.TimeType(6),
    spark.DayTimeIntervalType(),
    spark.DayTimeIntervalType(1, 2),
    spark.NullType(),
    spark.VariantType(),
    spark.ArrayType(spark.TimestampType()),
    spark.MapType(spark.StringType(), spark.DoubleType(), valueContainsNull=False),
    INNER,
    spark.ArrayType(spark.MapType(spark.IntegerType(), INNER)),
]


def struct(data_type: spark.DataType, *, nullable: bool = True) -> spark.StructType:
    return spark.StructType([spark.StructField("x", data_type, nullable=nullable)])


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_the_arrow_schema_is_the_one_that_spark_insists_on(
    data_type: spark.DataType, nullable: bool
) -> None:
    schema = struct(data_type, nullable=nullable or isinstance(data_type, spark.NullType))
    assert arrow_schema_of(schema.json()).equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_spark_types_survive_the_way_over_arrow(data_type: spark.DataType) -> None:
    schema = struct(data_type)
    back = spark.StructType.fromJson(json.loads(schema_json_of(arrow_schema_of(schema.json()))))
    expected = spark.DayTimeIntervalType() if isinstance(
        data_type, spark.DayTimeIntervalType
    ) else data_type  # fmt: skip
    assert back == struct(expected)


@pytest.mark.parametrize("data_type", [spark.CharType(3), spark.VarcharType(7)], ids=str)
def test_texts_of_limited_length_are_texts(data_type: spark.DataType) -> None:
    assert arrow_schema_of(struct(data_type).json()).field("x").type == pa.string()


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.timestamp("ns", "+00:00"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
    ],
    ids=str,
)
def test_arrow_types_that_spark_does_not_exchange_are_still_understood(
    arrow: pa.DataType, expected: str
) -> None:
    parsed = json.loads(schema_json_of(pa.schema([("x", arrow)])))
    assert parsed["fields"][0]["type"] == expected


@pytest.mark.parametrize(
    "data_type", [spark.YearMonthIntervalType(), spark.CalendarIntervalType()], ids=str
)
def test_a_type_that_cannot_be_stored_names_the_column(data_type: spark.DataType) -> None:
    nested = spark.StructType([spark.StructField("outer", struct(data_type))])
    with pytest.raises(SchemaMismatchError, match=r"'outer\.x' has the type interval") as caught:
        arrow_schema_of(nested.json())
    assert caught.value.column == "outer.x"


def test_an_arrow_type_without_a_spark_type_names_the_column() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'x\.element' has the type uint64"):
        schema_json_of(pa.schema([("x", pa.list_(pa.uint64()))]))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"type":"array"}'])
def test_text_that_is_no_struct_is_an_error(text: str) -> None:
    with pytest.raises(SchemaMismatchError):
        arrow_schema_of(text)


@pytest.mark.parametrize(
    "data_type",
    [
        spark.ArrayType(spark.NullType(), containsNull=False),
        spark.MapType(spark.StringType(), spark.NullType(), valueContainsNull=False),
        spark.StructType([spark.StructField("v", spark.NullType(), nullable=False)]),
    ],
)
def test_void_inside_what_spark_calls_empty_is_stored_as_nullable(
    data_type: spark.DataType,
) -> None:
    schema = storable(struct(data_type).json())
    assert struct_of(schema)["fields"][0]["name"] == "x"
    assert arrow_schema_of(struct(data_type).json()).names == ["x"]


def test_a_map_of_void_keys_is_refused_with_its_column() -> None:
    schema = struct(spark.MapType(spark.NullType(), spark.NullType()))
    with pytest.raises(SchemaMismatchError, match=r"column 'x\.key' has the type void"):
        storable(schema.json())
