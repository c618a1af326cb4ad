"""The options and errors in docs/STREAMING.md are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import ledgerlog_spark
from ledgerlog_spark import errors
from ledgerlog_spark.client.errors_from_codes import FAILURES
from ledgerlog_spark.datasource.options.table import ALIASES, Use
from ledgerlog_spark.datasource.options.values import BY_LOWER_NAME, TABLE, SourceOptions
from ledgerlog_spark.errors import ConfigurationError, LedgerLogError
from tests.unit.datasource.test_documentation import line

PAGE = (Path(__file__).parents[3] / "docs" / "STREAMING.md").read_text()
SOURCE = Path(ledgerlog_spark.__file__).parent
OPEN = "…"
"""Replaces the variable parts of a message."""

PARTS_OF_A_STREAM = (
    "datasource/scan/task_rows.py",
    "datasource/stream/source.py",
    "datasource/options/starting_offsets.py",
    "datasource/stream/*.py",
    "log/reading/committed_range.py",
    "log/reading/listed_rows.py",
    "log/committing/stream_ledgers.py",
    "protocol/log/commit/commit.py",
    "protocol/log/commit/epoch.py",
    "arrow/schema_evolution.py",
)
"""Modules whose errors can stop a stream."""

BUGS = {"LocalProtocolError", "InternalError"}
"""Errors in these modules that only a bug of ledgerlog causes."""

BETWEEN = {
    # A mistake of Spark itself, which no query of writeStream causes.
    "Spark did not name the streaming query (… is not set): write with writeStream",
    # It wraps the message of another error.
    "…. Some rows may have been lost. Set the option",
}


def chapter(title: str) -> str:
    """The chapter with this title."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of table rows that begin with code."""
    lines = [row for row in text.splitlines() if row.startswith("| `")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in lines]


MADE = re.compile(rf"\b(?:{'|'.join(map(re.escape, vars(errors)))})\(")
STOPS = [(row[0].strip("`"), row[1].strip("`")) for row in rows(chapter("When a query stops"))]
MOVED = rows(chapter("Coming from Kafka or Pulsar"))


def test_the_options_are_those_of_the_code_that_a_stream_takes() -> None:
    documented = [row for row in chapter("Options").splitlines() if row.startswith("| `")]
    assert documented == [line(option) for option in TABLE if option.use is not Use.BATCH]


@pytest.mark.parametrize("row", MOVED, ids=lambda row: row[0].strip("`"))
def test_an_option_of_kafka_or_pulsar_is_answered_as_documented(row: list[str]) -> None:
    theirs, ours, answer = row[0].strip("`"), row[1].strip("`"), row[2]
    assert ours == "" or ours.lower() in BY_LOWER_NAME
    known = ALIASES.get(theirs.lower(), theirs)
    if answer == "taken":
        assert known.lower() == ours.lower()
        assert known.lower() in BY_LOWER_NAME
        return
    assert answer == "refused"
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({theirs: "x"})
    hint = "" if "the error does not suggest this option" in row[-1] else ours
    assert (caught.value.option, caught.value.nearest or "") == (theirs.lower(), hint)


def test_most_options_of_kafka_are_there() -> None:
    assert len(MOVED) > 40
    assert {"subscribe", "startingOffsets", "service.url"} <= {row[0].strip("`") for row in MOVED}


@pytest.mark.parametrize(("error", "beginning"), STOPS, ids=lambda value: value[:60])
def test_a_message_in_the_table_is_one_that_the_code_makes(error: str, beginning: str) -> None:
    made = [text for text in messages()[error] if text.startswith(closed(beginning))]
    assert made, (error, beginning, messages()[error])


@pytest.mark.parametrize("pattern", PARTS_OF_A_STREAM)
def test_every_error_of_a_streams_modules_is_in_the_table(pattern: str) -> None:
    paths = sorted(SOURCE.glob(pattern))
    assert paths
    missing = [
        (str(path.relative_to(SOURCE)), error, text)
        for path in paths
        for error, text in messages_in(path)
        if error not in BUGS
        and not any(text.startswith(start) for start in BETWEEN)
        and not any(error == name and text.startswith(closed(start)) for name, start in STOPS)
    ]
    assert missing == []


def test_every_class_of_errors_is_in_the_tables_or_said_not_to_be_met() -> None:
    classes = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, LedgerLogError)
    }
    in_tables = {error for error, _ in STOPS}
    _, ending = chapter("When a query stops").split("### Errors that streams do not raise")
    not_met = set(re.findall(r"`(\w+Error)`", ending))
    not_met -= {"DataLossError"}  # the page names it as the result of other errors
    assert in_tables | not_met == classes
    assert not in_tables & not_met


def closed(beginning: str) -> str:
    """The beginning, up to the end of its first complete text."""
    return beginning.removesuffix(OPEN).rstrip()


@cache
def messages() -> dict[str, list[str]]:
    """Every message in the package by the name of its error, with `OPEN` for variable parts."""
    found: dict[str, list[str]] = {name: [] for name, _ in STOPS}
    for path in sorted(SOURCE.rglob("*.py")):
        for error, text in messages_in(path):
            found.setdefault(error, []).append(text)
    for failure, entry in FAILURES.items():
        for subject in ("ledger …", "entry … of ledger …", "nothing was sent: ledger …"):
            found.setdefault(entry.error.__name__, []).append(f"{subject}: {failure.value}")
    return found


@cache
def messages_in(path: Path) -> list[tuple[str, str]]:
    """The class and the message of every error that a module creates."""
    found: list[tuple[str, str]] = []
    text = path.read_text()
    if not MADE.search(text):
        return found
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not any(map(MADE.search, lines[function.lineno - 1 : function.end_lineno])):
            continue
        nodes = list(ast.walk(function))
        named = {
            target.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found += [
            (node.func.id, re.sub(f"{OPEN}+", OPEN, text_of(node.args[0], named)).replace("`", ""))
            for node in nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in vars(errors)
            and node.args
        ]
    return found


def text_of(node: ast.AST, named: dict[str, ast.expr]) -> str:
    """The constant parts of a text, including names with one known value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.BinOp):
        return text_of(node.left, named) + text_of(node.right, named)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, named) for part in node.values)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    if isinstance(inner, ast.Name) and isinstance(named.get(inner.id), ast.JoinedStr):
        return text_of(named[inner.id], {})
    return OPEN
