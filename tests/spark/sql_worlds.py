"""Runs one statement over logs and over Parquet, and records all of its effects."""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyarrow import parquet
from pyspark.sql import functions

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.errors import LogNotFoundError
from tests.spark.sql_statements import ROWS_A, ROWS_B

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "k BIGINT, s STRING"
NOTHING = "nothing there"
BASE = {"a": ROWS_A, "b": ROWS_B}


@dataclass
class Effect:
    """The effect of one run: its answer or error, and the rows afterwards."""

    answer: Any = None
    places: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    changed: bool = False


class Storage(Protocol):
    """The places in which one format keeps rows: logs, or directories."""

    format: str
    option: str

    def place(self, name: str) -> str:
        """The place with this name."""

    def stamp(self, place: str) -> object:
        """A value that changes with each write to the place; None if the place does not exist."""

    def read(self, place: str) -> Any:
        """The rows of the place."""

    def replace(self, place: str, rows: DataFrame) -> None:
        """Make these rows the only rows of a place. Each call for a place has the same rows."""

    def remove(self, place: str) -> None:
        """Delete the place."""


class World:
    """Tables `t`, `u` and views `v`, `w` over `a` and `b`, in one format.

    In a catalog of logs, `t` is the table of log `a`, `u` of `b`, `n` of `x`. The catalog has no
    views and no tables of other formats, so a statement may need a name outside of it.
    """

    def __init__(self, spark: SparkSession, storage: Storage, catalog: str = "") -> None:
        self.spark = spark
        self.storage = storage
        self.catalog = catalog
        short = uuid.uuid4().hex[:6]
        letter = storage.format[0]
        self.names = {
            **{key: f"{letter}{key}_{short}" for key in "tuvwn"},
            **{key: storage.place(f"{key}_{short}") for key in "abx"},
            "f": storage.format,
            "o": storage.option,
            "out": "",
        }
        if catalog:
            tables = {"t": "a", "u": "b"}
            self.names |= {key: f"{catalog}.`{self.names[log]}`" for key, log in tables.items()}
        self._new = {False: self.names["n"], True: f"{catalog}.`{self.names['x']}`"}
        self._stamps: dict[str, object] = {}
        for key in BASE:
            self._reset(key)
        self.define()

    @property
    def places(self) -> set[str]:
        """The places of `a`, `b` and `x`."""
        return {self.names[key] for key in "abx"}

    def place_new(self, *, in_catalog: bool) -> None:
        """Make `n` a name in the catalog, if there is one, or outside of it."""
        self.names["n"] = self._new[in_catalog and bool(self.catalog)]

    def define(self) -> None:
        """Re-create the tables and views."""
        n = self.names
        columns = "" if self.storage.format == "ledger" else f"({COLUMNS})"
        for table, place in () if self.catalog else (("t", "a"), ("u", "b")):
            self.spark.sql(f"DROP TABLE IF EXISTS {n[table]}")
            self.spark.sql(
                f"CREATE TABLE {n[table]} {columns} USING {self.storage.format} "
                f"OPTIONS ({self.storage.option} '{n[place]}')"
            )
        for view, place in (("v", "a"), ("w", "b")):
            self.spark.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW {n[view]} {columns} USING {self.storage.format} "
                f"OPTIONS (path '{n[place]}')"
            )

    def run(self, text: str, folder: Path) -> Effect:
        """Run the statements of `text`, and return their effect."""
        before = self._all_stamps()
        effect = Effect()
        names = {
            **self.names,
            "p": str(folder / "parquet"),
            "out": str(folder / f"o{uuid.uuid4().hex}"),
            "c": str(folder / f"c{uuid.uuid4().hex}"),
        }
        try:
            for part in text.split("; "):
                effect.answer = self._answer(part.format(**names))
        except Exception as error:  # noqa: BLE001 (any error that a statement can end with)
            effect.error, effect.answer = str(error), None
        effect.changed = before != self._all_stamps()
        if not effect.error:
            effect.places = {key: self.rows(key) for key in "abx"}
            effect.places["n"] = self._table(self.names["n"])
        return effect

    def restore(self, text: str) -> None:
        """Restore the state before the statements of `text`."""
        is_changed = False
        for key in BASE:
            if self._stamp(key) != self._stamps[key]:
                self._reset(key)
                is_changed = True
        self.storage.remove(self.names["x"])
        name = self.names["n"]
        if self.spark.catalog.tableExists(name):
            kind = "TABLE" if self._is_table(name) else "VIEW"
            self.spark.sql(f"DROP {kind} {name}")
        is_defined_anew = any(
            word in text for word in ("ALTER TABLE", "DROP TABLE", "REPLACE TABLE")
        )
        if is_defined_anew or (is_changed and self.storage.format == "parquet"):
            self.define()

    def rows(self, key: str) -> Any:
        stamp = self._stamp(key)
        if stamp is None:
            return NOTHING
        if stamp == self._stamps.get(key):
            return _sorted(BASE[key])
        return self.storage.read(self.names[key])

    def _stamp(self, key: str) -> object:
        return self.storage.stamp(self.names[key])

    def _reset(self, key: str) -> None:
        """Restore the first rows of `a` or `b`."""
        self.storage.replace(self.names[key], self._frame(key))
        self._stamps[key] = self._stamp(key)

    def _is_table(self, name: str) -> bool:
        found = self.spark.catalog.getTable(name)
        return found.tableType not in {"VIEW", "TEMPORARY"}

    def _all_stamps(self) -> object:
        return {key: self._stamp(key) for key in "abx"}

    def _answer(self, text: str) -> Any:
        if text[0].isupper():
            found = self.spark.sql(text)
        else:
            df = self.spark.sql("SELECT 3L AS k, 'z' AS s")
            found = eval(text, {"spark": self.spark, "df": df, "F": functions})
        return _collected(found) if hasattr(found, "collect") else None

    def _table(self, name: str) -> Any:
        if not self.spark.catalog.tableExists(name):
            return NOTHING
        return _collected(self.spark.table(name))

    def _frame(self, key: str) -> DataFrame:
        values = ", ".join(f"({number}L, '{text}')" for number, text in BASE[key])
        return self.spark.sql(f"SELECT k, s FROM VALUES {values} AS rows(k, s)").coalesce(1)


class Logs:
    """Logs of a cluster."""

    format = "ledger"
    option = "log"

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark = spark
        self._logs = client_of(uri).logs
        self._first: dict[str, tuple[str, int, int]] = {}

    def place(self, name: str) -> str:
        return f"sql-{name}"

    def stamp(self, place: str) -> object:
        try:
            log = self._logs.open(place)
        except LogNotFoundError:
            return None
        return log.log_id, log.state().head.version

    def others(self, places: set[str]) -> list[tuple[str, str, int]]:
        """All other logs of the cluster, with their versions."""
        opened = [self._logs.open(name) for name in self._logs.names() if name not in places]
        return sorted((log.name, log.log_id, log.state().head.version) for log in opened)

    def read(self, place: str) -> Any:
        return _collected(self._spark.read.format("ledger").load(place))

    def replace(self, place: str, rows: DataFrame) -> None:
        """Restore the version that has these rows; if the log or its columns are new, write it."""
        if self.stamp(place) is not None:
            log = self._logs.open(place)
            log_id, version, schema_id = self._first.get(place, ("", 0, 0))
            if (log_id, schema_id) == (log.log_id, log.state().head.schema_id):
                log.restore(version)
                return
        writer = rows.write.format("ledger").mode("overwrite")
        writer.option("overwriteSchema", "true").save(place)
        log = self._logs.open(place)
        head = log.state().head
        self._first[place] = log.log_id, head.version, head.schema_id

    def remove(self, place: str) -> None:
        if self.stamp(place) is not None:
            self._logs.delete(place)


class ParquetFiles:
    """Directories of Parquet files. Files that were written once are copied later."""

    format = "parquet"
    option = "path"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, name: str) -> str:
        return str(self._folder / name)

    def stamp(self, place: str) -> object:
        files = sorted(Path(place).glob("**/*.parquet"))
        return [(str(file), file.stat().st_mtime_ns) for file in files] or None

    def read(self, place: str) -> Any:
        table = parquet.read_table(place)
        return _sorted(tuple(row.values()) for row in table.to_pylist())

    def replace(self, place: str, rows: DataFrame) -> None:
        pristine = Path(f"{place}-pristine")
        if not pristine.exists():
            rows.write.parquet(str(pristine))
        self.remove(place)
        shutil.copytree(pristine, place)

    def remove(self, place: str) -> None:
        shutil.rmtree(place, ignore_errors=True)


def reason(error: str) -> str:
    """The line of an error that explains it: our line, or Spark's first line."""
    ours = re.search(r"^ledgerlog_spark\.errors\.\w+: (.*)$", error, re.MULTILINE)
    return ours[1] if ours else error.split("\n", 1)[0]


def is_ours(error: str) -> bool:
    return "ledgerlog_spark.errors." in error or "LedgerLogException" in error


def _collected(frame: DataFrame) -> Any:
    return _sorted(map(tuple, frame.collect()))


def _sorted(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)
