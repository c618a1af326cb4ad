"""All that Spark's SQL can say about a ledger table, beside the same over Parquet.

The table in docs/SPARK.md is what was seen here. `make sql-table` writes it anew.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.sql_table import is_hidden
from tests.spark.sql_statements import STATEMENTS, Statement
from tests.spark.sql_worlds import Effect, Logs, ParquetFiles, World, is_ours, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

pytestmark = pytest.mark.skipif(not is_hidden(), reason="this Spark makes no ledger tables")

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"
BEGIN, END = "<!-- statements: `make sql-table` writes this -->", "<!-- end of statements -->"
UPDATE = "LEDGERLOG_UPDATE_DOCS"
SHOWN = {**{name: name for name in "abcnptuvwx"}, "f": "ledger", "o": "log", "out": "p"}
CASES = [
    pytest.param(statement, settings, id=f"{statement.text[:60]} {settings}")
    for statement in STATEMENTS
    for settings in statement.settings
]


@dataclass
class Run:
    """One statement under one setting, over logs and over Parquet, and what is offered instead."""

    ledger: Effect
    parquet: Effect
    instead: Effect | None = None


@dataclass
class Runs:
    """All of them, and every other log of the cluster before and after."""

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
    parquet = World(spark, ParquetFiles(folder))
    spark.table(ledger.names["t"]).write.parquet(str(folder / "parquet"))
    logs = stored.others(ledger.places)
    seen = {}
    for statement in STATEMENTS:
        for settings in statement.settings:
            for key, value in zip(keys, settings, strict=True):
                spark.conf.set(key, str(value).lower())
            seen[statement.text, settings] = _run(statement, ledger, parquet, folder)
    for key, value in zip(keys, before, strict=True):
        spark.conf.set(key, str(value))
    # After all others: a source's process that refused something has to be started anew.
    offered: dict[str, Effect] = {}
    for statement in STATEMENTS:
        refused = [seen[statement.text, settings] for settings in statement.settings]
        if statement.instead and any(run.ledger.error for run in refused):
            if statement.instead not in offered:
                offered[statement.instead] = ledger.run(statement.instead, folder)
                ledger.restore(statement.instead)
            for run in refused:
                run.instead = offered[statement.instead]
    yield Runs(seen, logs, stored.others(ledger.places))
    for world in (ledger, parquet):
        for table in "tu":
            spark.sql(f"DROP TABLE IF EXISTS {world.names[table]}")


def _run(statement: Statement, ledger: World, parquet: World, folder: Path) -> Run:
    text = statement.parquet or statement.text
    run = Run(ledger.run(statement.text, folder), parquet.run(text, folder))
    ledger.restore(statement.text)
    parquet.restore(text)
    return run


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
    yield "| for | statement | effect | instead |"
    yield "|---|---|---|---|"
    for statement in STATEMENTS:
        effects = {
            _effect(statement, seen[statement.text, settings]) for settings in statement.settings
        }
        instead = statement.instead.format(**SHOWN) if any("refused" in e for e in effects) else ""
        yield (
            f"| {statement.group} | {_code(statement.text.format(**SHOWN))} | "
            f"{' or '.join(sorted(effects))} | {_code(instead)} |"
        )


def _effect(statement: Statement, run: Run) -> str:
    if statement.note:
        return statement.note
    if not run.ledger.error:
        return "as Parquet"
    who = "ledgerlog" if is_ours(run.ledger.error) else "Spark"
    if run.parquet.error:
        return f"refused by {who}, as for Parquet"
    return f"refused by {who}"


def _code(text: str) -> str:
    """As code in a cell; a backtick or a bar in it would end that."""
    if not text:
        return ""
    marks = "``" if "`" in text else "`"
    return f"{marks}{text}{marks}"
