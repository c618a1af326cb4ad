"""The jar of the JVM engine on the class path (ledgerlog_spark.datasource.jar)."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import ledgerlog_spark
from ledgerlog_spark.datasource import jar as jars
from ledgerlog_spark.datasource.configure import configure
from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Made = Callable[[str], Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A function that creates the jar of this installation, for a version of Spark."""

    def make(version: str) -> Path:
        path = tmp_path / "ledgerlog-spark.jar"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(jars.PROPERTIES, f"spark.version={version}\n")
        monkeypatch.setattr(jars, "JAR", path)
        return path

    return make


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> SparkSession.Builder:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    new = SparkSession.Builder()
    monkeypatch.setattr(new, "_options", {})
    return new


def test_the_path_of_the_jar_is_public_and_an_installation_without_it_says_how_to_build_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = made("4.3.0")
    assert ledgerlog_spark.jar_path() == str(path)
    monkeypatch.setattr(jars, "JAR", tmp_path / "none.jar")
    with pytest.raises(ConfigurationError, match="make shim"):
        jars.jar_path()


def test_a_jar_fits_the_minor_version_that_it_was_built_for(made: Made, tmp_path: Path) -> None:
    path = made("4.3.0")
    assert jars.built_for(path) == "4.3.0"
    assert jars.fits("4.3.2", path)
    assert not jars.fits("4.2.0", path)
    assert not jars.fits("4.3.2", tmp_path / "none.jar")
    path.write_bytes(b"no archive")
    assert jars.built_for(path) is None


def test_a_builder_gets_the_jar_beside_its_own_jars(
    made: Made, builder: SparkSession.Builder
) -> None:
    path = made(pyspark.__version__)
    builder.config("spark.jars", "mine.jar")
    configure(configure(builder))
    assert builder._options["spark.jars"] == f"mine.jar,{path}"


def test_a_builder_gets_no_jar_of_another_spark(made: Made, builder: SparkSession.Builder) -> None:
    made("1.0.0")
    configure(builder)
    assert "spark.jars" not in builder._options


def test_jars_in_the_file_of_defaults_are_kept(
    made: Made, builder: SparkSession.Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(pyspark.__version__)
    defaults = tmp_path / "spark-defaults.conf"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert jars.default_jars() == ""
    defaults.write_text("# a comment\nspark.master local\nspark.jars   a.jar,b.jar\n")
    configure(builder)
    assert builder._options["spark.jars"] == f"a.jar,b.jar,{path}"
    defaults.write_text("spark.jars=c.jar\n")
    assert jars.default_jars() == "c.jar"
