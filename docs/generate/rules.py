"""Writes the reference of the rules, with the modules that implement each rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from docs.generate.markdown import code, table
from docs.generate.sources import ROOT, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES: Final = ("PROTOCOL.md", "LOGS.md", "AUTORECOVERY.md")
RULE: Final = re.compile(
    r'^(?:- )?<a id="([A-Z]\d{1,2})"></a>\*\*\1\b\.?(.*?)(?=^(?:- )?<a id|^#|\Z)',
    re.MULTILINE | re.DOTALL,
)
CITATION: Final = re.compile(r"\b([A-Z]{3,}\.md)#([A-Z]\d{1,2})(?:-([A-Z]\d{1,2}))?")
SENTENCE: Final = re.compile(r"(.*?[.:])(?:\s|\*\*|$)", re.DOTALL)
LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
HEAD: Final = """\
# Rules

This page lists the rules of the [protocol](../PROTOCOL.md), of [logs](../LOGS.md) and of
[auto-recovery](../AUTORECOVERY.md). For each rule, it names the modules whose texts cite the rule.
[Constants](constants.md) lists the limits and times of the code.

"""


def page() -> str:
    """Return the page about all rules, with a table for each page that defines rules."""
    places = _places()
    parts = []
    for name in PAGES:
        rows = [
            (
                f"[{rule}](../{name}#{rule})",
                title,
                ", ".join(map(code, places.get((name, rule), ()))),
            )
            for rule, title in _rules_of((ROOT / "docs" / name).read_text())
        ]
        parts.append(f"## {name}\n\n{table(('rule', 'begins with', 'modules'), rows)}")
    return HEAD + "\n".join(parts)


def _rules_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the first sentence of each rule of a page."""
    for rule, body in RULE.findall(text):
        plain = LINK.sub(r"\1", body.replace("**", " ")).strip()
        sentence = SENTENCE.match(plain)
        yield rule, " ".join((sentence[1] if sentence else plain).split())


def _places() -> dict[tuple[str, str], list[str]]:
    """Return, for each page and rule, the modules that cite the rule or a range with the rule."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in python_files():
        module = str(path.relative_to(ROOT)).removesuffix("/__init__.py")
        for page, rule in dict.fromkeys(_cited_in(path.read_text())):
            found.setdefault((page, rule), []).append(module)
    return found


def _cited_in(text: str) -> Iterator[tuple[str, str]]:
    for page, first, last in CITATION.findall(text):
        numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
        yield from ((page, f"{first[0]}{number}") for number in numbers)
