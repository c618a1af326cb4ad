"""The jar of the JVM engine, and the version of Spark for which the jar was built.

If the jar has a class with the name of the source, Spark uses this class instead of the Python
source. If the jar was built for another minor version of Spark, this class stays inactive, and the
jar has no effect.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from ledgerlog_spark.errors import ConfigurationError

JAR = Path(__file__).parents[1] / "jars" / "ledgerlog-spark.jar"
PROPERTIES = "ledgerlog-spark.properties"
JARS_SETTING = "spark.jars"
CATALOG_SETTING = "spark.sql.catalog.ledger"
CATALOG_CLASS = "io.ledgerlog.spark.LedgerCatalog"


def jar_path() -> str:
    """Return the path of the jar with the JVM engine, for the setting `spark.jars`.

    Raises:
        ConfigurationError: This installation of ledgerlog has no jar.
    """
    if not JAR.exists():
        raise ConfigurationError(
            f"this installation of ledgerlog has no jar of the JVM engine ({JAR}): build it with "
            "`make shim` in a checkout, or with `pip wheel --no-build-isolation` where PySpark and "
            "Java are installed",
            path=str(JAR),
        )
    return str(JAR)


def built_for(jar: Path | None = None) -> str | None:
    """Return the version of Spark that the jar was built for, or None if there is no jar."""
    try:
        with zipfile.ZipFile(jar or JAR) as archive:
            lines = archive.read(PROPERTIES).decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    values = dict(line.partition("=")[::2] for line in lines)
    return values.get("spark.version")


def fits(spark_version: str, jar: Path | None = None) -> bool:
    """Whether there is a jar that was built for this minor version of Spark."""
    built = built_for(jar)
    return built is not None and built.split(".")[:2] == spark_version.split(".")[:2]


def with_jar(given: str | None) -> str:
    """Return the value of `spark.jars` with the jar added. `given` is the present value."""
    jars = [jar for jar in (given or default_jars()).split(",") if jar]
    return ",".join(jars if str(JAR) in jars else [*jars, str(JAR)])


def default_jars() -> str:
    """Return the value of `spark.jars` in Spark's file of defaults.

    If a builder sets `spark.jars`, Spark does not use this value.
    """
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    if folder is None:
        return ""
    try:
        lines = Path(folder, "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.replace("=", " ", 1).strip().partition(" ")
        if key == JARS_SETTING:
            return value.strip()
    return ""
