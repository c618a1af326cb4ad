"""The terms of docs/GLOSSARY.md: each place exists, and no name contains a forbidden word."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.architecture.trees import PYTHON, ROOT, assert_none, name, nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

GLOSSARY: Final = ROOT / "docs" / "GLOSSARY.md"

KNOWN: Final[dict[str, str]] = {}
"""Names that the glossary forbids and that still exist, with their future names."""

TWICE: Final[dict[str, str]] = {}
"""Classes that share their name with another class, with the future name of the second."""

CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of a table of the glossary."""

    term: str
    meaning: str
    where: str
    never: str


@cache
def rows() -> tuple[Row, ...]:
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| **")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    wrong = [line for line, row in zip(lines, cells, strict=True) if len(row) != len(Row._fields)]
    assert_none(wrong, "a row has a term, a meaning, a place and the words never used for it")
    return tuple(
        Row(term.strip("*"), meaning, where, never.strip(" |"))
        for term, meaning, where, never in cells
    )


def words_of(identifier: str) -> tuple[str, ...]:
    """The words of a name, in lower case: `LogMaintenance` and `log_maintenance` have the same."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    return tuple(word for word in spaced.lower().split("_") if word)


def without_terms(words: tuple[str, ...], terms: Iterable[tuple[str, ...]]) -> str:
    """The words as one text, without the terms of several words that are in it."""
    text = f"_{'_'.join(words)}_"
    for term in terms:
        text = text.replace(f"_{'_'.join(term)}_", "__")
    return text


@cache
def long_terms() -> tuple[tuple[str, ...], ...]:
    split = (tuple(re.split(r"[ -]", row.term.lower())) for row in rows())
    return tuple(sorted((term for term in split if len(term) > 1), key=len, reverse=True))


def defined_in(path: Path) -> Iterator[tuple[str, int]]:
    """The name of a module and the names that it defines, with their lines."""
    yield path.stem, 1
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


class Named(NamedTuple):
    """A name in a module, and the first line with it."""

    path: str
    identifier: str
    line: int


@cache
def names() -> dict[str, list[Named]]:
    """Each name once for a module, by the words of the name without terms."""
    found: dict[tuple[str, str], int] = {}
    for path in PYTHON:
        for identifier, line in defined_in(path):
            key = (name(path), identifier)
            found[key] = min(line, found.get(key, line))
    grouped: dict[str, list[Named]] = {}
    for (module, identifier), line in found.items():
        words = without_terms(words_of(identifier), long_terms())
        grouped.setdefault(words, []).append(Named(module, identifier, line))
    return grouped


class Ban(NamedTuple):
    """A word that no name has in these folders."""

    term: str
    word: str
    folders: tuple[str, ...]


def bans_of(row: Row) -> Iterator[Ban]:
    """`a`, `b` in `folder`, `folder`; `c`: words with their folders, or everywhere."""
    for group in row.never.split(";"):
        banned, _, folders = group.partition(" in ")
        inside = tuple(CODE.findall(folders)) or ("ledgerlog_spark", "bookie_server")
        for word in CODE.findall(banned):
            yield Ban(row.term, word, inside)


def uses(ban: Ban) -> Iterator[Named]:
    text = f"_{'_'.join(words_of(ban.word))}_"
    folders = tuple(f"{folder}/" for folder in ban.folders)
    is_exact = ban.word.startswith("_")
    for words, named in names().items():
        if is_exact or text in words:
            for each in named:
                if each.path.startswith(folders) and (not is_exact or each.identifier == ban.word):
                    yield each


def test_glossary_has_each_term_once_and_a_meaning_for_each() -> None:
    terms = [row.term for row in rows()]
    assert len(terms) > 50
    assert_none({term for term in terms if terms.count(term) > 1}, "one row for a term")
    assert_none([row.term for row in rows() if not row.meaning.endswith(".")], "a full sentence")


def test_place_of_each_term_exists() -> None:
    missing = []
    for row in rows():
        path, *defined = CODE.findall(row.where)
        place = ROOT / path
        if not place.is_file():
            missing.append(f"{row.term}: {path}")
            continue
        inside = {each for each, _ in defined_in(place)} if path.endswith(".py") else set()
        missing += [f"{row.term}: {path} has no {each}" for each in defined if each not in inside]
    assert_none(missing, "correct the glossary")


def test_folders_of_the_glossary_exist() -> None:
    folders = {folder for row in rows() for ban in bans_of(row) for folder in ban.folders}
    assert_none({each for each in folders if not (ROOT / each).is_dir()}, "correct the glossary")


def test_no_name_has_a_word_that_the_glossary_forbids() -> None:
    found = [
        f"{path}:{line}: {identifier}: {ban.word} is not used for {ban.term}"
        for row in rows()
        for ban in bans_of(row)
        for path, identifier, line in uses(ban)
        if f"{path}: {identifier}" not in KNOWN
    ]
    assert_none(found, "use the word of docs/GLOSSARY.md")


def test_known_violations_are_still_there() -> None:
    there = {
        f"{path}: {identifier}"
        for row in rows()
        for ban in bans_of(row)
        for path, identifier, _ in uses(ban)
    }
    assert_none(KNOWN.keys() - there, "gone: delete them from KNOWN")


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in PYTHON:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name(path))
    return {each: paths for each, paths in found.items() if len(paths) > 1}


def test_no_two_classes_have_the_same_name() -> None:
    found = [
        f"{each}: {', '.join(paths)}" for each, paths in classes().items() if each not in TWICE
    ]
    assert_none(found, "a name means one thing")


def test_known_doubles_are_still_there() -> None:
    assert_none(TWICE.keys() - classes().keys(), "gone: delete them from TWICE")


def test_words_are_found_in_names_of_every_form() -> None:
    assert words_of("BlockingLogMaintenance") == ("blocking", "log", "maintenance")
    assert words_of("_open_LACs2") == words_of("open_la_cs2")
    assert without_terms(("entry", "log", "file"), [("entry", "log", "file")]) == "__"
    assert "_log_" in without_terms(("old", "log"), [("entry", "log", "file")])
