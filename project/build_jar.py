"""Compiles the jar of the JVM engine with the Scala compiler among Spark's own jars.

The build hook of the wheel and the tests use this program, where sbt is missing. `make shim` builds
the same jar with sbt, and tests it. `python project/build_jar.py` compiles the jar if a source is
newer.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path("jvm-shim", "src", "main")
JAR = Path("ledgerlog_spark", "jars", "ledgerlog-spark.jar")
PROPERTIES = "ledgerlog-spark.properties"
COMPILE_SECONDS_MAX = 300
_CORE = re.compile(r"spark-core_2\.13-(.+)\.jar")
_EPOCH = (1980, 1, 1, 0, 0, 0)


class NotBuiltError(Exception):
    """The jar cannot be compiled here; the text says what is missing."""


def build_jar(root: Path, jar: Path | None = None) -> Path:
    """Compile the jar of the checkout at `root`, unless it is newer than its sources.

    `jar` is the path of the result; by default, the path in the package `ledgerlog_spark`.
    """
    jar = jar or root / JAR
    files = sorted(each for each in (root / SOURCES).rglob("*") if each.is_file())
    if jar.exists() and all(jar.stat().st_mtime >= each.stat().st_mtime for each in files):
        return jar
    spark_jars, version = _spark_jars()
    java = shutil.which("java")
    if java is None:
        raise NotBuiltError("there is no java on the PATH")
    with tempfile.TemporaryDirectory() as made:
        classes = Path(made)
        scala = [str(each) for each in files if each.suffix == ".scala"]
        compiler = ["scala.tools.nsc.Main", "-usejavacp", "-release", "17", "-d", made]
        done = subprocess.run(
            [java, "-Xmx1g", "-cp", f"{spark_jars}/*", *compiler, *scala],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_SECONDS_MAX,
        )
        if done.returncode:
            raise NotBuiltError(f"the Scala compiler failed:\n{done.stdout}{done.stderr}")
        shutil.copytree(root / SOURCES / "resources", classes, dirs_exist_ok=True)
        (classes / PROPERTIES).write_text(f"spark.version={version}\n")
        _write(jar, classes)
    return jar


def _spark_jars() -> tuple[Path, str]:
    """The folder of the installed PySpark's jars, and the version of Spark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotBuiltError("PySpark is not installed")
    folder = Path(found.origin).parent / "jars"
    versions = [match[1] for each in folder.glob("*.jar") if (match := _CORE.fullmatch(each.name))]
    if not versions:
        raise NotBuiltError(f"{folder} has no jars of Spark for Scala 2.13")
    return folder, versions[0]


def _write(jar: Path, classes: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(classes.rglob("*")):
            if each.is_file():
                entry = zipfile.ZipInfo(each.relative_to(classes).as_posix(), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, each.read_bytes())
    unfinished.replace(jar)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build_jar(Path(__file__).resolve().parents[1])}\n")
    except NotBuiltError as missing:
        sys.exit(f"the jar was not built: {missing}")
