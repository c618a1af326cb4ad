"""The errors that users see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write.writer import BatchWriter
from ledgerlog_spark.errors import ConcurrentCommitError
from tests.spark.frames import load, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]


def test_an_unknown_option_names_the_nearest_one(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r'unknown option "subscribe"\. Did you mean "log"\?'):
        load(spark, "flights", subscribe="x")


def test_an_unknown_option_of_a_write_names_the_nearest_one(
    spark: SparkSession, save: Save
) -> None:
    with pytest.raises(Exception, match=r'option "compresion"\. Did you mean "compression"\?'):
        save(spark.range(1), compresion="zstd")


def test_a_log_that_does_not_exist_is_named(spark: SparkSession, log_name: str) -> None:
    with pytest.raises(Exception, match=f"LogNotFoundError.*{log_name}"):
        load(spark, log_name)


def test_a_missing_log_is_not_made_when_that_is_switched_off(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    with pytest.raises(Exception, match='"createIfMissing" is false'):
        save(spark.range(1), createIfMissing="false")
    with pytest.raises(Exception, match="LogNotFoundError"):
        load(spark, log_name)


def test_a_version_that_never_was_is_refused_with_those_there_are(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(1))
    with pytest.raises(Exception, match="does not exist; available versions are 0 to 1"):
        load(spark, log_name, versionAsOf="5")


def test_a_write_quorum_above_the_ensemble_is_refused(spark: SparkSession, save: Save) -> None:
    with pytest.raises(Exception, match="ensemble_size >= write_quorum"):
        save(spark.range(1), ensembleSize="2", writeQuorum="3", ackQuorum="2")


def test_too_few_bookies_are_counted_before_a_task_runs_and_make_no_log(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"

    def mark(rows: Iterator[Row]) -> Iterator[Row]:
        ran.touch()
        return rows

    frame = spark.createDataFrame(spark.range(1).rdd.mapPartitions(mark), "id long")
    with pytest.raises(Exception, match=r"NotEnoughBookiesError.*needs 5 .*there are 3"):
        save(frame, ensembleSize="5")
    assert not ran.exists()
    save(frame)
    assert load(spark, log_name).count() == 1


def test_a_write_to_a_path_without_a_cluster_makes_nothing_there(
    spark: SparkSession, log_name: str, save: Save, cluster: Cluster
) -> None:
    elsewhere = cluster.metadata_service_uri.replace("/ledgers", "/other")
    with pytest.raises(Exception, match="no cluster at /other"):
        save(spark.range(1), metadataServiceUri=elsewhere)
    with pytest.raises(Exception, match="no cluster at /other"):
        load(spark, log_name, metadataServiceUri=elsewhere)


def test_other_properties_than_the_logs_own_are_refused(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(1), ensembleSize="1")
    save(spark.range(1))
    with pytest.raises(Exception, match=r'"ensembleSize" is 3, but log .* has 1'):
        save(spark.range(1), ensembleSize="3")


def test_a_row_beyond_the_frame_limit_names_both_sizes(spark: SparkSession, save: Save) -> None:
    row = spark.range(1).selectExpr("repeat(sha2(CAST(id AS string), 512), 50000) AS text")
    with pytest.raises(Exception, match=r"one row has 6400[0-9]* bytes when encoded"):
        save(row, compression="none")


def test_the_password_has_to_be_the_ledgers(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret\n")
    wrong.write_text("guess\n")
    save(spark.range(3), passwordFile=str(right))
    same_rows(load(spark, log_name, passwordFile=str(right)), spark.range(3))
    with pytest.raises(Exception, match="UnauthorizedError"):
        load(spark, log_name, passwordFile=str(wrong)).collect()
    for given, said in (
        ({"passwordFile": str(wrong)}, "does not match that of log"),
        ({}, "is missing; a password protects log"),
    ):
        with pytest.raises(Exception, match=f"UnauthorizedError.*{said}"):
            save(spark.range(3), **given)
    save(spark.range(3, 5), passwordFile=str(right))
    same_rows(load(spark, log_name, passwordFile=str(right)), spark.range(5))


def test_a_password_for_a_log_that_has_none_is_refused(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("secret\n")
    save(spark.range(3))
    with pytest.raises(Exception, match=r"UnauthorizedError.*has no password"):
        save(spark.range(3), passwordFile=str(tmp_path / "password"))
    same_rows(load(spark, log_name), spark.range(3))


def test_a_commit_by_somebody_else_fails_an_overwrite(
    spark: SparkSession, cluster: Cluster, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    schema = spark.range(1).schema.json()

    def planned(**options: str) -> BatchWriter:
        write = SourceOptions.parse({"log": log_name, **options}).for_write()
        return BatchWriter(cluster.metadata_service_uri, write, schema, overwrite=True)

    strict, lenient = planned(), planned(overwriteIfChanged="true")
    save(spark.range(3, 5))
    with pytest.raises(ConcurrentCommitError):
        strict.commit([])
    same_rows(load(spark, log_name), spark.range(5))
    lenient.commit([])
    assert load(spark, log_name).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "x"}, 'unknown option "subscribe"'),
        ({"endingOffsets": "3"}, 'option "endingOffsets" is for batch reads'),
        ({"versionAsOf": "1"}, 'option "versionAsOf" is for batch reads'),
        ({"log": "another"}, "the path is .* but the option"),
        ({"maxBytesPerTrigger": "much"}, '"maxBytesPerTrigger"'),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"processingTime": "1 second"}], ids=str
)
def test_a_stream_with_bad_options_stops_with_the_error_of_the_option(
    options: dict[str, str],
    said: str,
    trigger: dict[str, Any],
    spark: SparkSession,
    log_name: str,
    save: Save,
    tmp_path: Path,
) -> None:
    save(spark.range(1))
    # With a schema of the user, Spark calls the source only when the query starts.
    frame = spark.readStream.format("ledger").schema("id long").options(**options).load(log_name)
    writing = frame.writeStream.format("noop").trigger(**trigger)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=f"ConfigurationError.*{said}") as caught:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.parametrize("option", [{"timestampAsOf": "2001-01-01"}, {"versionAsOf": "9"}], ids=str)
def test_a_version_that_is_not_there_is_no_advice_for_a_stream(
    option: dict[str, str], spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(1))
    (name,) = option
    with pytest.raises(Exception, match=f'With spark.readStream leave "{name}" out'):
        spark.readStream.format("ledger").options(**option).load(log_name)


def test_an_end_before_the_start_is_an_error(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    frame = load(spark, log_name, startingOffsets="7", endingOffsets="3")
    with pytest.raises(Exception, match="begin at offset 7 and end before it, at offset 3"):
        frame.collect()
    assert load(spark, log_name, startingOffsets="7", endingOffsets="7").count() == 0
