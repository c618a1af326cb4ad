"""The look-up of the source by Spark (pyspark_ledger, ledgerlog_spark.datasource.source)."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledgerlog_spark.datasource import cluster
from ledgerlog_spark.datasource.configure import configure
from ledgerlog_spark.datasource.options.sql_table import with_table_options
from ledgerlog_spark.datasource.scan import planning
from ledgerlog_spark.datasource.scan.reader import BatchReader, RawReader
from ledgerlog_spark.datasource.schemas import raw_schema
from ledgerlog_spark.errors import ConfigurationError, VersionNotAvailableError
from pyspark_ledger import DefaultSource

ROOT = Path(__file__).parents[3]


def reader(**options: str) -> object:
    from pyspark.sql.types import LongType, StructType

    return DefaultSource(options).reader(StructType().add("id", LongType()))


def test_the_look_up_imports_nothing_heavy() -> None:
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_ledger; "
        "assert pyspark_ledger.DefaultSource.name() == 'ledger'; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(run.stdout.split()) <= {"ledgerlog_spark", "pyspark_ledger"}


def test_options_are_checked_before_any_connection_is_made() -> None:
    with pytest.raises(ConfigurationError, match='Did you mean "log"'):
        reader(subscribe="flights")


@pytest.mark.parametrize("option", [{"timestampAsOf": "-99999999d"}, {"versionAsOf": "9"}], ids=str)
def test_a_version_that_is_not_there_is_advice_for_a_stream_only_if_it_is_one(
    option: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_there(*_: object) -> str:
        raise VersionNotAvailableError("log 'a' can be read as of 2026 or later", oldest=3)

    monkeypatch.setattr(cluster, "client_of", lambda _uri: SimpleNamespace(logs=None))
    monkeypatch.setattr(planning, "schema_of", not_there)
    source = DefaultSource({"log": "a", "metadataServiceUri": "zk://nowhere/ledgers", **option})
    with pytest.raises(VersionNotAvailableError) as caught:
        source.schema()
    (name,) = option
    assert str(caught.value) == (
        f"log 'a' can be read as of 2026 or later. With spark.readStream leave \"{name}\" out."
    )
    assert caught.value.oldest == 3


def test_no_reader_takes_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    for kind in (BatchReader, RawReader):
        assert kind.pushFilters is DataSourceReader.pushFilters


def test_readers_travel_between_processes() -> None:
    for made in (reader(log="flights"), reader(ledgerid="7")):
        assert type(pickle.loads(pickle.dumps(made))) is type(made)


def test_no_partition_at_all_reads_as_nothing() -> None:
    from pyspark.sql.datasource import InputPartition

    for made in (reader(log="flights"), reader(ledgerid="7")):
        assert list(made.read(InputPartition(None))) == []  # type: ignore[attr-defined]


def test_a_tables_options_are_used_when_nothing_else_names_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import json

    import pyspark
    from pyspark.sql.types import StructType

    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    told = with_table_options(raw_schema(), {"log": "flights", "minpartitions": "3"})
    schema = StructType.fromJson(json.loads(told))
    taken = DefaultSource({"endingoffsets": "5"}).reader(schema).options
    assert (taken.log, taken.min_partitions, taken.ending_offsets) == ("flights", 3, {"*": 5})
    own = DefaultSource({"log": "delays"}).reader(schema).options
    assert (own.log, own.min_partitions) == ("delays", None)


def test_configure_takes_builders_and_sessions_only() -> None:
    with pytest.raises(ConfigurationError, match="got str"):
        configure("spark")


def test_configure_prepares_a_builder_and_the_environment_that_spark_will_start_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "to be removed")
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("LEDGERLOG_METADATA_SERVICE_URI", "zk://before/ledgers")
    builder = SparkSession.Builder()
    monkeypatch.setattr(builder, "_options", {})
    assert configure(builder, "zk://here/ledgers") is builder
    assert builder._options["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"
    assert builder._options["spark.python.unix.domain.socket.enabled"] == "true"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["LEDGERLOG_METADATA_SERVICE_URI"] == "zk://here/ledgers"


def test_configure_says_what_a_running_session_cannot_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    builder = SparkSession.Builder()
    monkeypatch.setattr(builder, "_options", {})
    configure(builder)
    assert "cannot be changed" in caplog.text
