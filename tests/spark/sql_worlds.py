"""Runs one statement over logs and over Parquet, and notes all that it did to either."""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import parquet
from pyspark.sql import functions

from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.errors import LogNotFoundError
from tests.spark.sql_statements import ROWS_A, ROWS_B

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "k BIGINT, s STRING"
NOTHING = "nothing there"
BASE = {"a": ROWS_A, "b": ROWS_B}


@dataclass
class Effect:
    """What one run did: its answer, and what is there afterwards; an error instead of an answer."""

    answer: Any = None
    places: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    changed: bool = False


class World:
    """Tables `t`, `u` and views `v`, `w` over `a` and `b`, as one format keeps them."""

    format: str
    option: str

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        short = uuid.uuid4().hex[:6]
        letter = self.format[0]
        self.names = {
            **{key: f"{letter}{key}_{short}" for key in "tuvwn"},
            **{key: self.place(f"{key}_{short}") for key in "abx"},
            "f": self.format,
            "o": self.option,
            "out": "",
        }
        self._stamps: dict[str, object] = {}
        for key in BASE:
            self.reset(key)
            self._stamps[key] = self.stamp(key)
        self.define()

    def place(self, name: str) -> str:
        """The log, or the directory, of that name."""
        raise NotImplementedError

    def stamp(self, key: str) -> object:
        """Changes whenever anything is written to `a`, `b` or `x`; None when nothing is there."""
        raise NotImplementedError

    def read(self, key: str) -> Any:
        """The rows of what is there."""
        raise NotImplementedError

    def reset(self, key: str) -> None:
        """Give `a` or `b` the rows that it has at first."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        """Delete what is there."""
        raise NotImplementedError

    def define(self) -> None:
        """Make tables and views anew."""
        n = self.names
        columns = "" if self.format == "ledger" else f"({COLUMNS})"
        for table, place in (("t", "a"), ("u", "b")):
            self.spark.sql(f"DROP TABLE IF EXISTS {n[table]}")
            self.spark.sql(
                f"CREATE TABLE {n[table]} {columns} USING {self.format} "
                f"OPTIONS ({self.option} '{n[place]}')"
            )
        for view, place in (("v", "a"), ("w", "b")):
            self.spark.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW {n[view]} {columns} USING {self.format} "
                f"OPTIONS (path '{n[place]}')"
            )

    def run(self, text: str, folder: Path) -> Effect:
        """What the statements of `text` did."""
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
        """Everything as it was before the statements of `text`."""
        is_changed = False
        for key in BASE:
            if self.stamp(key) != self._stamps[key]:
                self.reset(key)
                self._stamps[key] = self.stamp(key)
                is_changed = True
        self.remove("x")
        name = self.names["n"]
        if self.spark.catalog.tableExists(name):
            kind = "TABLE" if self._is_table(name) else "VIEW"
            self.spark.sql(f"DROP {kind} {name}")
        is_defined_anew = any(
            word in text for word in ("ALTER TABLE", "DROP TABLE", "REPLACE TABLE")
        )
        if is_defined_anew or (is_changed and self.format == "parquet"):
            self.define()

    def rows(self, key: str) -> Any:
        stamp = self.stamp(key)
        if stamp is None:
            return NOTHING
        if stamp == self._stamps.get(key):
            return _sorted(BASE[key])
        return self.read(key)

    def _is_table(self, name: str) -> bool:
        found = self.spark.catalog.getTable(name)
        return found.tableType not in {"VIEW", "TEMPORARY"}

    def _all_stamps(self) -> object:
        return {key: self.stamp(key) for key in "abx"}

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


class LedgerWorld(World):
    """Logs; a write to any log of the cluster is seen."""

    format = "ledger"
    option = "log"

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._logs = logs_at(uri)
        super().__init__(spark)

    def place(self, name: str) -> str:
        return f"sql-{name}"

    def stamp(self, key: str) -> object:
        try:
            log = self._logs.open(self.names[key])
        except LogNotFoundError:
            return None
        return log.log_id, log.state().head.version

    def other_logs(self) -> list[tuple[str, str, int]]:
        """Every log of the cluster but `a`, `b` and `x`, with its version."""
        ours = {self.names[key] for key in "abx"}
        opened = [self._logs.open(name) for name in self._logs.names() if name not in ours]
        return sorted((log.name, log.log_id, log.state().head.version) for log in opened)

    def read(self, key: str) -> Any:
        return _collected(self.spark.read.format("ledger").load(self.names[key]))

    def reset(self, key: str) -> None:
        writer = self._frame(key).write.format("ledger").mode("overwrite")
        writer.option("overwriteSchema", "true").save(self.names[key])

    def remove(self, key: str) -> None:
        if self.stamp(key) is not None:
            self._logs.delete(self.names[key])


class ParquetWorld(World):
    """Directories of Parquet files."""

    format = "parquet"
    option = "path"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        super().__init__(spark)

    def place(self, name: str) -> str:
        return str(self._folder / name)

    def stamp(self, key: str) -> object:
        files = sorted(Path(self.names[key]).glob("**/*.parquet"))
        return [(str(file), file.stat().st_mtime_ns) for file in files] or None

    def read(self, key: str) -> Any:
        table = parquet.read_table(self.names[key])
        return _sorted(tuple(row.values()) for row in table.to_pylist())

    def reset(self, key: str) -> None:
        place = Path(self.names[key])
        pristine = place.with_name(f"{place.name}-pristine")
        if not pristine.exists():
            self._frame(key).write.parquet(str(pristine))
        self.remove(key)
        shutil.copytree(pristine, place)

    def remove(self, key: str) -> None:
        shutil.rmtree(self.names[key], ignore_errors=True)


def reason(error: str) -> str:
    """The line of an error that says what is wrong: ours, or Spark's first."""
    ours = re.search(r"^ledgerlog_spark\.errors\.\w+: (.*)$", error, re.MULTILINE)
    return ours[1] if ours else error.split("\n", 1)[0]


def is_ours(error: str) -> bool:
    return "ledgerlog_spark.errors." in error


def _collected(frame: DataFrame) -> Any:
    return _sorted(map(tuple, frame.collect()))


def _sorted(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)
