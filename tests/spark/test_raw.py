"""One ledger, entry by entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.frames import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

PAYLOADS = [b"entry %d" % n for n in range(500)]


def raw(spark: SparkSession, ledger_id: int, **options: str) -> DataFrame:
    return spark.read.format("ledger").options(ledgerId=str(ledger_id), **options).load()


def test_a_ledger_is_read_entry_by_entry(spark: SparkSession, client: BlockingClient) -> None:
    ledger = client.create_ledger()
    ledger.append_batch(PAYLOADS)
    ledger.close()
    frame = raw(spark, ledger.id, minPartitions="3")
    assert frame.columns == ["ledger_id", "entry_id", "payload"]
    assert frame.rdd.getNumPartitions() == 3
    expected = [(ledger.id, n, bytearray(payload)) for n, payload in enumerate(PAYLOADS)]
    assert rows_of(frame) == sorted(expected, key=repr)


def test_an_open_ledger_is_read_up_to_what_is_confirmed_and_stays_open(
    spark: SparkSession, client: BlockingClient
) -> None:
    ledger = client.create_ledger()
    ledger.append_batch(PAYLOADS[:10])
    assert raw(spark, ledger.id).count() <= 10
    assert ledger.append(b"more") == 10
    ledger.close()
    assert raw(spark, ledger.id).count() == 11


def test_an_empty_ledger_has_no_rows(spark: SparkSession, client: BlockingClient) -> None:
    ledger = client.create_ledger()
    ledger.close()
    assert raw(spark, ledger.id).collect() == []


def test_a_ledger_that_does_not_exist_is_named(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"LedgerNotFoundError.*987654"):
        raw(spark, 987654).collect()


def test_columns_of_entries_are_chosen_by_name_in_any_case(
    spark: SparkSession, client: BlockingClient
) -> None:
    ledger = client.create_ledger()
    ledger.append_batch(PAYLOADS[:2])
    ledger.close()
    frame = raw(spark, ledger.id, columns="Payload")
    assert rows_of(frame) == [(bytearray(b"entry 0"),), (bytearray(b"entry 1"),)]
    reader = spark.read.format("ledger").option("ledgerId", str(ledger.id))
    assert rows_of(reader.schema("ENTRY_ID long").load()) == [(0,), (1,)]
    with pytest.raises(Exception, match="entries of a ledger have no column 'paylod'"):
        reader.schema("paylod binary").load().collect()
    with pytest.raises(Exception, match='"includeMetadata" adds columns to the rows of logs'):
        raw(spark, ledger.id, includeMetadata="true")
