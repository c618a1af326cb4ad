"""The scans that the JVM engine runs (ledgerlog_spark.datasource.jvm)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.datasource.jvm.answers import answer_to
from ledgerlog_spark.datasource.jvm.origins import ConversionNeededError, Origin, origins_of
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.errors import ConfigurationError, WireFormatError

STORED = pa.schema(
    [("k", pa.int64()), ("Name", pa.string()), ("s", pa.struct([("x", pa.int32())]))]
)


def origins(
    *columns: tuple[str, object], metadata: bool = False, ignores_case: bool = True
) -> list[Origin]:
    return origins_of(
        pa.schema(list(columns)), STORED, include_metadata=metadata, ignores_case=ignores_case
    )


def test_stored_columns_are_taken_by_name_and_missing_ones_are_null() -> None:
    wanted = [("s", STORED.field("s").type), ("new", pa.int8()), ("name", pa.string())]
    assert origins(*wanted) == [2, None, 1]


def test_a_scan_without_columns_needs_none() -> None:
    assert origins() == []


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (("k", pa.float64()), "'k' is stored as int64"),
        (("k", pa.int32()), "'k' is stored as int64"),
        (("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])), "'s' is stored as struct"),
        (pa.field("k", pa.int64(), nullable=False), "'k' is not nullable"),
    ],
)
def test_a_column_that_needs_a_conversion_belongs_to_python(
    column: tuple[str, object], reason: str
) -> None:
    with pytest.raises(ConversionNeededError, match=reason):
        origins(column)


def test_names_in_another_case_are_other_names_to_a_case_sensitive_query() -> None:
    assert origins(("NAME", pa.string())) == [1]
    with pytest.raises(ConversionNeededError, match="in another case"):
        origins(("NAME", pa.string()), ignores_case=False)
    assert origins(("Name", pa.string()), ignores_case=False) == [1]


def test_metadata_columns_come_from_the_plan() -> None:
    fields = '{"name":"_offset","type":"long","nullable":true,"metadata":{}}'
    wanted = arrow_schema_of(f'{{"type":"struct","fields":[{fields}]}}')
    assert origins_of(wanted, STORED, include_metadata=True, ignores_case=True) == ["_offset"]
    assert origins_of(wanted, STORED, include_metadata=False, ignores_case=True) == [None]
    with pytest.raises(ConversionNeededError, match="'_offset' is stored as int64"):
        origins(("_offset", pa.int32()), metadata=True)


def test_the_schema_of_a_read_is_that_of_the_python_source() -> None:
    options = {"ledgerId": "7", "metadataServiceUri": "zk://never-contacted:2181/ledgers"}
    answer = answer_to(LedgerDataSource, {"format": 1, "options": options})
    assert answer == {"format": 1, "schema": LedgerDataSource(options=options).schema().json()}
    with pytest.raises(ConfigurationError, match="colour"):
        answer_to(LedgerDataSource, {"format": 1, "options": {"colour": "red"}})


def test_a_request_of_another_release_is_refused() -> None:
    with pytest.raises(WireFormatError, match="the same release"):
        answer_to(LedgerDataSource, {"format": 2})
