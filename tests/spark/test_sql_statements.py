"""All SQL statements for a ledger table, compared with the same statements over Parquet.

The tables are those of the session catalog, with the Python source, and those of the catalog of
the jar.

The table in docs/SPARK.md has the results of this test. `make sql-table` rewrites it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.sql_table import is_hidden
from tests.spark.conftest import ENGINE_SETTING
from tests.spark.sql_statements import STATEMENTS, Statement
from tests.spark.sql_worlds import NOTHING, Effect, Logs, ParquetFiles, World, is_ours, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

pytestmark = pytest.mark.skipif(not is_hidden(), reason="this Spark makes no ledger tables")

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"
BEGIN, END = "<!-- statements: `make sql-table` writes this -->", "<!-- end of statements -->"
UPDATE = "LEDGERLOG_UPDATE_DOCS"
VALUES = (
    ("with case-insensitive names", "with case-sensitive names"),
    ("with ANSI off", "with ANSI on"),
)
"""The names in the table of the values, false and true, of a statement's two settings."""
SHOWN = {**{name: name for name in "abcnptuvwx"}, "f": "ledger", "o": "log", "out": "p"}
CASES = [
    pytest.param(statement, settings, id=f"{statement.text[:60]} {settings}")
    for statement in STATEMENTS
    for settings in statement.settings
]


@dataclass
class Run:
    """One statement over logs, in the catalog and over Parquet, and its alternative."""

    ledger: Effect
    parquet: Effect
    catalog: Effect
    instead: Effect | None = None


@dataclass
class Runs:
    """All statements, and the other logs of the cluster before and after them."""

    seen: dict[tuple[str, tuple[bool, bool]], Run]
    logs_before: list[tuple[str, str, int]]
    logs_after: list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("sql")
    keys = ("spark.sql.caseSensitive", "spark.sql.ansi.enabled")
    before = [spark.conf.get(key) for key in keys]
    stored = Logs(spark, cluster.metadata_service_uri)
    ledger = World(spark, stored)
    catalog = World(spark, stored, "ledger")
    parquet = World(spark, ParquetFiles(folder))
    spark.table(ledger.names["t"]).write.parquet(str(folder / "parquet"))
    logs = stored.others(ledger.places | catalog.places)
    seen = {}
    for statement in STATEMENTS:
        for settings in statement.settings:
            for key, value in zip(keys, settings, strict=True):
                spark.conf.set(key, str(value).lower())
            seen[statement.text, settings] = _run(statement, ledger, catalog, parquet, folder)
    for key, value in zip(keys, before, strict=True):
        spark.conf.set(key, str(value))
    # At the end, because the process of a source restarts after a refusal.
    spark.conf.set(ENGINE_SETTING, "python")
    offered: dict[str, Effect] = {}
    for statement in STATEMENTS:
        refused = [seen[statement.text, settings] for settings in statement.settings]
        if statement.instead and any(run.ledger.error for run in refused):
            if statement.instead not in offered:
                offered[statement.instead] = ledger.run(statement.instead, folder)
                ledger.restore(statement.instead)
            for run in refused:
                run.instead = offered[statement.instead]
    spark.conf.unset(ENGINE_SETTING)
    yield Runs(seen, logs, stored.others(ledger.places | catalog.places))
    for world in (ledger, parquet):
        for table in "tu":
            spark.sql(f"DROP TABLE IF EXISTS {world.names[table]}")


def _run(statement: Statement, ledger: World, catalog: World, parquet: World, folder: Path) -> Run:
    texts = (statement.text, statement.text_in_catalog, statement.parquet or statement.text)
    effects = []
    for world, text in zip((ledger, catalog, parquet), texts, strict=True):
        world.place_new(in_catalog=statement.group not in {"read", "view"})
        if world is ledger:  # with the jar, tables of the session catalog are those of the engine
            world.spark.conf.set(ENGINE_SETTING, "python")
        effects.append(world.run(text, folder))
        world.restore(text)
        world.spark.conf.unset(ENGINE_SETTING)
    on_logs, in_catalog, on_parquet = effects
    return Run(ledger=on_logs, catalog=in_catalog, parquet=on_parquet)


@pytest.mark.parametrize(("statement", "settings"), CASES)
def test_a_statement_does_what_parquet_does_or_changes_nothing_and_has_an_alternative(
    runs: Runs, statement: Statement, settings: tuple[bool, bool]
) -> None:
    run = runs.seen[statement.text, settings]
    if not run.ledger.error and not statement.note:
        assert not run.parquet.error, "Parquet refuses it"
        assert run.ledger.answer == run.parquet.answer
        assert run.ledger.places == run.parquet.places
        return
    assert not run.ledger.changed
    if statement.note:
        assert not run.parquet.changed
        return
    assert run.parquet.error or statement.instead, "Parquet does it: say what to write instead"
    if run.instead is not None:
        assert not run.instead.error
        if statement.leaves is not None:
            place, rows = statement.leaves
            assert run.instead.places[place] == sorted(rows, key=repr)
        elif not run.parquet.error:
            assert run.instead.places == run.parquet.places
    if is_ours(run.ledger.error):
        said = reason(run.ledger.error)
        assert any(way in said for way in ('save("name")', 'start("name")', "TABLE t USING ledger"))


@pytest.mark.parametrize(("statement", "settings"), CASES)
def test_a_statement_does_in_the_catalog_what_parquet_does_or_more_or_changes_nothing(
    runs: Runs, statement: Statement, settings: tuple[bool, bool]
) -> None:
    run = runs.seen[statement.text, settings]
    seen = run.catalog
    if seen.error:
        assert not seen.changed
    elif statement.differs:
        pass
    elif run.parquet.error:
        assert statement.leaves is not None, "Parquet refuses it: say what it leaves"
        place, rows = statement.leaves
        left = seen.answer if place == "answer" else seen.places[place]
        assert left == sorted(rows, key=repr)
    else:
        assert seen.answer == run.parquet.answer
        assert _places(seen) == _places(run.parquet)


def _places(effect: Effect) -> dict[str, Any]:
    """The existing places. The table `n` of the catalog is the log `x`."""
    made = effect.places["n"]
    new = effect.places["x"] if made == NOTHING else made
    return {"a": effect.places["a"], "b": effect.places["b"], "new": new}


def test_no_other_log_was_made_or_changed(runs: Runs) -> None:
    assert runs.logs_before == runs.logs_after


def test_the_documented_table_is_what_was_seen(runs: Runs) -> None:
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    documented, _, tail = rest.partition(END)
    seen = "\n" + "\n".join(_lines(runs.seen)) + "\n"
    if os.environ.get(UPDATE):
        PAGE.write_text(f"{head}{BEGIN}{seen}{END}{tail}")
        return
    assert documented == seen, "run `make sql-table`, and look at what changed"


def _lines(seen: dict[Any, Run]) -> Iterator[str]:
    yield "| for | statement | effect | instead | in the catalog |"
    yield "|---|---|---|---|---|"
    for statement in STATEMENTS:
        effects = {
            settings: _effect(statement, seen[statement.text, settings])
            for settings in statement.settings
        }
        is_refused = any("refused" in effect for effect in effects.values())
        instead = statement.instead.format(**SHOWN) if is_refused else ""
        yield (
            f"| {statement.group} | {_code(statement.text.format(**SHOWN))} | "
            f"{_joined(effects)} | {_code(instead)} | {_in_catalog(statement, seen)} |"
        )


def _joined(effects: dict[tuple[bool, bool], str]) -> str:
    """The effect of a statement. If two effects differ, each has the value of its setting."""
    if len(set(effects.values())) == 1:
        return next(iter(effects.values()))
    (one, first), (other, second) = effects.items()
    (place,) = (place for place, value in enumerate(one) if value is not other[place])
    words = VALUES[place]
    return f"{words[one[place]]}: {first}; {words[other[place]]}: {second}"


def _effect(statement: Statement, run: Run) -> str:
    if statement.note:
        return statement.note
    if not run.ledger.error:
        return "as Parquet"
    return _refusal(run.ledger, run.parquet)


def _in_catalog(statement: Statement, seen: dict[Any, Run]) -> str:
    effects = {}
    for settings in statement.settings:
        run = seen[statement.text, settings]
        if run.catalog.error:
            effects[settings] = _refusal(run.catalog, run.parquet)
        else:
            more = "works (Parquet fails)" if run.parquet.error else "as Parquet"
            effects[settings] = statement.differs or more
    text = statement.text_in_catalog
    other = "" if text == statement.text else f"; written as {_code(text.format(**SHOWN))}"
    return f"{_joined(effects)}{other}"


def _refusal(effect: Effect, parquet: Effect) -> str:
    who = "ledgerlog" if is_ours(effect.error) else "Spark"
    return f"refused by {who} (Parquet fails too)" if parquet.error else f"refused by {who}"


def _code(text: str) -> str:
    """The text as code in a cell. A backtick or a bar in the text would end the code."""
    if not text:
        return ""
    marks = "``" if "`" in text else "`"
    return f"{marks}{text}{marks}"
