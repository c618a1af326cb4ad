"""Each rule has an anchor, each citation leads to a rule, and only the repository is cited.

A rule is a letter and a number: a bold name or a row of a table in a page of docs, after an anchor
of that name. A citation is `PAGE.md#K7`, `PAGE.md#K1-K10`, or `PAGE.md#heading`; within the pages
it is a link. A whole string, such as the rule of a mutation, may be only the name.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.test_guides import GUIDES, anchors_of, by_name
from tests.architecture.trees import ROOT, text, tracked

PAGES = {page.name: page for page in GUIDES if page.parent in {ROOT, ROOT / "docs"}}
SOURCES = [
    path
    for path in tracked()
    if (path.suffix in {".py", ".proto"} or path.parent.parent.name == "transcripts")
    and path != Path(__file__)
]
WRITTEN = [*GUIDES, ROOT / "Makefile", *(p for p in tracked() if p.suffix == ".ipynb")]
"""Other files that cite rules. No program reads these citations."""

COUNTEREXAMPLES = [*(ROOT / "tests").rglob("test_counterexamples.py")]

NAME = r"[A-Z]\d{1,2}"
CITATION = re.compile(r"(?P<page>[\w/.-]*\b[A-Z]{3,}\.md)#(?P<anchor>[\w-]*\w)")
RANGE = re.compile(rf"({NAME})-({NAME})")
LINK = re.compile(rf"\[({NAME})\]\([\w/.-]*#({NAME})\)")
LITERAL = re.compile(rf'"({NAME})"')
BARE = re.compile(r"([A-Z](?<![\w'#.][A-Z])\d{1,2})(?![\w/'])")
"""Not `E3/Qw3`, an ensemble size, and not `X'C3'`, bytes in SQL. The letter comes first, because
the search for a set of characters is fast, and a negative look-behind is slow."""

PAGE_NAME = re.compile(r"(?<![\"\w/])(?:docs/[\w/-]+|[A-Z]{3,})\.md\b(?!#)")
"""A page name within a text. A whole string may be a file that a test makes."""

TARGET = re.compile(r"\]\([^)\s]+\)")
SVG_PATH = re.compile(r' d="[^"]*"')
SECTION = re.compile(r"\.md, [A-Z]\w")
DECISION = re.compile(r"\bADR (\d+)|\badr/(\d{4})")
OUTSIDE = re.compile(
    r"\bDESIGN\b|\b(?:design|sections?|issue|decision) \d"
    r"|(?<![\"'\w/])(?:seeds|reference|reviews?)/"
    r"|\b(?:seeds|review)\.md"
)
ANCHOR = re.compile(rf'<a id="({NAME})"></a>')
ITEM = re.compile(rf"^(?:- )?((?:<a [^>]*></a>)?)\*\*({NAME})\b", re.MULTILINE)
ROW = re.compile(rf"^\| ((?:(?:<a [^>]*></a>)?{NAME}(?:, )?)+) \|", re.MULTILINE)
CELL = re.compile(rf"((?:<a [^>]*></a>)?)({NAME})(?!\")")

DECISIONS = {path.name[:4] for path in (ROOT / "docs/adr").iterdir()}
RULE_PAGES = ("LOGS.md", "PROTOCOL.md", "AUTORECOVERY.md")
TEXTS = {page: (ROOT / "docs" / page).read_text() for page in RULE_PAGES}


def rules_in(text: str) -> list[tuple[str, str]]:
    """Each rule that a page defines, with the text before its name."""
    cells = [found for row in ROW.findall(text) for found in CELL.findall(row)]
    return [(name, before) for before, name in [*ITEM.findall(text), *cells]]


RULES = {page: {name for name, _ in rules_in(text)} for page, text in TEXTS.items()}
PAGE_OF = {name: page for page, names in RULES.items() for name in names}
LETTERS = {name[0] for name in PAGE_OF} | {"T"}
ANCHORS = {name: anchors_of(page) for name, page in PAGES.items()}
SCRIPTS = {
    f"T{number}"
    for path in COUNTEREXAMPLES
    for number in re.findall(r"^def t(\d+)_", path.read_text(), re.MULTILINE)
}


def cited_by(page: str, anchor: str) -> tuple[list[str], str | None]:
    """The rules of one citation, and its faults.

    A range counts only for its ends. The rules between are cited by the code that implements them.
    """
    if page not in PAGES:
        return [], f"no page {page}"
    if ends := RANGE.fullmatch(anchor):
        first, last = ends.groups()
        rises = first[0] == last[0] and int(first[1:]) < int(last[1:])
        is_there = rises and {first, last} <= RULES.get(page, set())
        return [first, last], None if is_there else f"no range {page}#{anchor}"
    if anchor not in ANCHORS[page]:
        return [], f"no anchor {page}#{anchor}"
    return [anchor], None


def citations_in(text: str) -> tuple[set[str], list[str]]:
    """The rules that a source cites, and the faults of its citations."""
    cited: set[str] = set()
    wrong = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if ".md#" not in line:
            continue
        for found in CITATION.finditer(line):
            names, why = cited_by(found["page"], found["anchor"])
            cited.update(names)
            wrong += [why] if why else []
        lines[number] = CITATION.sub("", line)
    rest = SVG_PATH.sub("", "\n".join(lines))
    literals = {name for name in LITERAL.findall(rest) if name[0] in LETTERS}
    wrong += [f"no rule {name}" for name in sorted(literals - PAGE_OF.keys())]
    bare = {name for name in BARE.findall(LITERAL.sub("", rest)) if name[0] in LETTERS}
    wrong += [f"{name} without its page" for name in sorted(bare - SCRIPTS)]
    wrong += [f"a section without its anchor: {text}" for text in SECTION.findall(rest)]
    return cited | literals, wrong


@cache
def citations_of(path: Path) -> tuple[set[str], list[str]]:
    """The result of `citations_in` for a source."""
    return citations_in(text(path))


def outside(text: str) -> list[str]:
    """Names in a text of things that the repository does not contain."""
    wrong = [f"no {name}" for name in PAGE_NAME.findall(text) if not is_page(name)]
    numbers = [f"{int(short or long):04}" for short, long in DECISION.findall(text)]
    wrong += [f"no decision {number}" for number in numbers if number not in DECISIONS]
    return wrong + [f"a document outside: {name}" for name in OUTSIDE.findall(TARGET.sub("", text))]


def is_page(name: str) -> bool:
    return (ROOT / name).exists() or name in PAGES


def citations_of_a_page(text: str) -> list[str]:
    """Faults of the citations outside of link targets. In a guide, citations are links."""
    found = CITATION.finditer(TARGET.sub("]", text))
    return [why for each in found if (why := cited_by(each["page"], each["anchor"])[1])]


def links_in(text: str) -> list[str]:
    """Faults of a guide: a link with another name, a rule without a link, a missing script."""
    wrong = [f"{name} leads to {to}" for name, to in LINK.findall(text) if name != to]
    for pattern in (LINK, CITATION, ANCHOR, ITEM, ROW):
        text = pattern.sub("", text)
    bare = {name for name in BARE.findall(text) if name[0] in LETTERS}
    return wrong + [f"{name} is no link" for name in sorted(bare - SCRIPTS)]


def anchors_in(text: str) -> list[str]:
    """Faults of a page: rules without an anchor, and useless, duplicate or unordered anchors."""
    rules = rules_in(text)
    names = [name for name, _ in rules]
    anchors = ANCHOR.findall(text)
    wrong = [f"{name} has no anchor" for name, before in rules if before != f'<a id="{name}"></a>']
    wrong += [f"anchor {name} has no rule" for name in sorted({*anchors} - {*names})]
    for found in (names, anchors):
        wrong += [f"{name} is there twice" for name in sorted({*found}) if found.count(name) > 1]
    for letter in sorted({name[0] for name in names}):
        of_letter = [int(name[1:]) for name in names if name[0] == letter]
        wrong += [] if letter == "V" or of_letter == sorted(of_letter) else [f"{letter}: order"]
    return wrong


def require_nothing(offences: dict[str, list[str]]) -> None:
    """Fail with all faults, by file."""
    lines = [f"{path}: {what}" for path, wrong in sorted(offences.items()) for what in wrong]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_rules_have_one_anchor_each_and_are_in_order() -> None:
    """Otherwise a link would not work, or a reader would not find W9 before W10."""
    assert all(len(names) > 20 for names in RULES.values())
    require_nothing({page: anchors_in(text) for page, text in TEXTS.items()})


def test_no_letter_is_used_on_two_pages() -> None:
    letters = [{name[0] for name in names} for names in RULES.values()]
    assert set.intersection(*letters) == set()


def test_citations_of_the_sources_lead_somewhere() -> None:
    require_nothing({by_name(path): citations_of(path)[1] for path in SOURCES})


def test_citations_of_the_pages_lead_somewhere() -> None:
    require_nothing({by_name(path): citations_of_a_page(text(path)) for path in WRITTEN})


def test_every_rule_is_cited_by_code_or_a_test() -> None:
    cited = {name for path in SOURCES for name in citations_of(path)[0]}
    uncited = {page: sorted(names - cited) for page, names in RULES.items()}
    require_nothing({page: [f"{name} is not cited" for name in uncited[page]] for page in uncited})


def test_rules_that_guides_name_are_links() -> None:
    require_nothing({by_name(page): links_in(text(page)) for page in GUIDES})


def test_nothing_cites_what_the_repository_does_not_hold() -> None:
    texts = [*SOURCES, *GUIDES]
    require_nothing({by_name(path): outside(text(path)) for path in texts})


@pytest.mark.parametrize(
    ("text", "offences"),
    [
        ("LOGS.md#K7, PROTOCOL.md#A4, WIRE.md#answer-codes, LOGS.md#K1-K10", 0),
        ("LOGS.md#K99", 1),
        ("LOGS.md#A4", 1),
        ("LOGS.md#no-such-heading", 1),
        ("NOWHERE.md#K7", 1),
        ("docs/LOGS.md#K7", 1),
        ("LOGS.md#K1-K99", 1),
        ("LOGS.md#K10-K1", 1),
        ("LOGS.md#K1-J4", 1),
        ("settled, never guessed (K7)", 1),
        ("docs/LOGS.md K7", 1),
        ("docs/LOGS.md, Formats", 1),
        ('Mutation("K7")', 0),
        ('Mutation("K99")', 1),
        ("T99: a script that is not there", 1),
        ("E3/Qw3/Qa2, T9, X'C3'", 0),
        ('<path d="M0 0 L8 4 z"/>', 0),
    ],
)
def test_offences_of_a_source_are_found(text: str, offences: int) -> None:
    assert len(citations_in(text)[1]) == offences


@pytest.mark.parametrize(
    ("text", "offences"),
    [
        ("`LOGS.md#K7`, LOGS.md#K1-K10, [K9](../LOGS.md#K9), E3/Qw3", 0),
        ("`LOGS.md#K99`", 1),
        ("LOGS.md#K1-K99, PROTOCOL.md#K7, NOWHERE.md#K7", 3),
        ('"source": ["# LOGS.md#no-such-heading\\n"]', 1),
    ],
)
def test_offences_of_a_pages_citations_are_found(text: str, offences: int) -> None:
    assert len(citations_of_a_page(text)) == offences


@pytest.mark.parametrize(
    ("text", "offences"),
    [
        ("docs/LOGS.md, LOGS.md, ADR 1, docs/adr/0001, by design", 0),
        ("DESIGN 6.1", 1),
        ("the scan (design 7)", 1),
        ("section 4.7", 1),
        ("seeds/rules.md", 1),
        ("reference/bookie.txt", 1),
        ("review/house.md", 1),
        ("see docs/NOWHERE.md", 1),
        ('{"docs/NOWHERE.md": ""}', 0),
        ("ADR 99", 1),
        ("[Reference](reference/index.md)", 0),
    ],
)
def test_documents_that_are_not_here_are_found(text: str, offences: int) -> None:
    assert len(outside(text)) == offences


@pytest.mark.parametrize(
    ("text", "offences"),
    [
        ('- <a id="K1"></a>**K1** One.\n- <a id="K2"></a>**K2** Two.', 0),
        ('| <a id="L1"></a>L1, <a id="L2"></a>L2 | what holds |', 0),
        ("- **K1** One.", 1),
        ("| L1 | what holds |", 1),
        ('- <a id="K2"></a>**K1** One.', 2),
        ('<a id="K1"></a>**K1. One.** <a id="K2"></a>', 1),
        ('- <a id="K1"></a>**K1** One.\n- <a id="K1"></a>**K1** One.', 2),
        ('- <a id="K2"></a>**K2** Two.\n- <a id="K1"></a>**K1** One.', 1),
    ],
)
def test_offences_of_a_page_are_found(text: str, offences: int) -> None:
    assert len(anchors_in(text)) == offences


@pytest.mark.parametrize(
    ("text", "offences"),
    [
        ("[K7](#K7), [E12](PROTOCOL.md#E12), `LOGS.md#K7`, E3/Qw3, T9", 0),
        ("as K7 has it", 1),
        ("[K7](#K6)", 1),
        ("T99", 1),
    ],
)
def test_offences_of_a_guide_are_found(text: str, offences: int) -> None:
    assert len(links_in(text)) == offences
