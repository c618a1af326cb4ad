"""Phrases that readers whose second language is English read twice, and their matcher.

`TICS` is the table. `hits` looks for them in the prose of files. The prose of a Python module is
its docstrings, its comments and its strings of more than one word. The prose of a Markdown page is
everything outside of code. The prose of a notebook is its Markdown cells, and that of a Makefile
its comments. Text in backticks is a name, and not prose.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.architecture.house.syntax import nodes_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NAME: Final = "\N{WHITE SQUARE}"
"""Replaces each character of a text in backticks."""


@dataclass(frozen=True)
class Tic:
    """One turn of phrase.

    Attributes:
        pattern: The pattern, which ignores case; `\\s+` also matches the end of a line.
        instead: The recommended phrase.
        bad: Prose that the pattern must match.
        good: Prose that the pattern must not match.
    """

    pattern: str
    instead: str
    bad: tuple[str, ...]
    good: tuple[str, ...] = ()


_VERBS_AFTER_WHAT = (
    r"is|was|are|were|has|had|can|cannot|could|may|must|will|would|comes|came|stands|stood|holds|"
    r"waits|goes|went|fits|fails|failed|follows|followed|remains|remained|counts|counted|lies|"
    r"makes|made|keeps|kept|needs|needed|gets|belongs|changes|changed|does|did|no|nobody|takes"
)

TICS: Final = {
    "what-subject": Tic(
        rf"\bwhat\s+(?:{_VERBS_AFTER_WHAT})\b(?![^.?!]*\?)",
        "name the thing: `the pending appends` for `what is pending`",
        ("Deletes what no version needs.", "Treats what was\npending as unknown.", "what takes it"),
        ("What is a ledger?", "a question of what it means"),
    ),
    "what-object": Tic(
        r"\b(?:returns?|gives?|holds?|keeps?|takes?|gets|of|for|with|from|in|by|to|at)\s+what\s+"
        r"(?:it|they|we|you|a|an|the|that|this|its|each|every|users?|others?|one|another)\b",
        "name the thing: `the entries it read` for `what it read`",
        ("Returns what each\none took.", "a part of what it holds"),
        ("Say what to do.",),
    ),
    "who-subject": Tic(
        r"(?:(?:^|[.]\s+)(?-i:Who)|(?:[;:]|\b(?:and|by|for|to|from|of|than))\s+who)\s+(?!am\b)[a-z]+"
        r"(?![^.?!]*\?)",
        "a noun: `a waiter that gives up` for `who gives up`",
        (
            "Who loses the race\ngoes on.",
            "kept by who handles them",
            "it wakes, and who waits goes on",
        ),
        ("Who are you?", "people\nwho come from Kafka", "the driver, who waits"),
    ),
    "whose-subject": Tic(
        r"\b(?:whose\s+(?:its|it|the|they)\b|is\s+whose\b|by\s+whose\b)",
        "`owner`, or a clause with a noun",
        ("report whose its ledgers are", "The leader is whose ledger is listed."),
        ("a file whose pages are full", "a log whose ledgers were deleted"),
    ),
    "nobody": Tic(
        r"\b(?:no|some|any|every)body\b|\bwhoever\b|\beverybody's\b|\bno\s+one\b",
        "the program or person that is meant, or the passive",
        ("There is nobody to ask.", "whoever comes later"),
        ("no ledger",),
    ),
    "says": Tic(
        r"\b(?:says|said|saying)\b|\b(?:they|that|must|can|may|cannot|to|not|could|and|records|digits|"
        r"types|entries|bookies)\s+say\b(?!,)|\bsay\s+(?:--|so\b|that\b|all\b|nothing\b)|^say\b",
        "`contains`, `states`, `reports`, `means`; `pass --yes` for `say --yes`",
        (
            "unless it says so",
            "so say --yes",
            "Entries of an open ledger say that it was confirmed.",
        ),
        ("that is to say, twice", "essay"),
    ),
    "told": Tic(
        r"\b(?:told|tells?|telling)\b",
        "`notify`, `report`, `inform`, `distinguish`, `determine`",
        ("Tell the owner.", "which cannot be told"),
        ("TELL_LAC is an opcode",),
    ),
    "knows": Tic(
        r"\b(?:knows|knew)\b|\b(?:not|to|that|who|bookies|machines|they)\s+know\b",
        "`has`, `supports`, `is aware of`; `unknown to` is fine",
        ("The pipeline knows neither.", "a bookie that does not know it"),
        ("an unknown ledger", "a known end", "if you know the id"),
    ),
    "asks": Tic(
        r"\bask(?:s|ed|ing)?\b(?!\s+for\s+confirmation)",
        "`request`, `read from`, `query`; people are asked, programs get requests",
        ("It asks the next bookie.", "while it asks for more"),
        ("task", "they ask for confirmation"),
    ),
    "hears": Tic(
        r"\b(?:hears?|heard|hearing)\b",
        "`receive`, `be notified`, `learn`",
        ("Watches hear of it.", "not heard from since"),
    ),
    "let-go": Tic(
        r"\b(?:let|lets|letting)\s+(?:\S+\s+){0,3}?(?:go|gone)\b(?!\s+on\b)",
        "`delete`, `release`, `drop`, `remove`",
        ("Let go of what no version needs.", "letting\nledgers go", "lets a ledger go"),
        ("let it go on", "it goes away"),
    ),
    "let-pass": Tic(
        r"\b(?:let|lets|letting)\s+(?:\S+\s+)?(?:pass|through|stand|be)\b",
        "`accept`, `raise unless`, `leave unchanged`",
        ("Let pass a log that has a leader.", "it lets writes through"),
    ),
    "behind-after": Tic(
        r"(?:^|\(|:\s)(?-i:Behind)\b|\bbehind\s+(?:the\s+(?:last|end|largest|newest|first|one|others?|entry|"
        r"range|row|record|header|head|frame|window)|its?|them|that|this|those|which|what|all|each|"
        r"every|one|another|everything|us|an?\s+(?:entry|range|row|end|record))\b|\b(?:one|lies?|"
        r"lying|stands?|stood|left|queues?|line|wait(?:s|ed|ing)?|comes?|came|follows?)\s+behind\b",
        "`after`",
        ("Behind the last row.", "one behind\nthe other", "what lies behind", "the ids behind it"),
        ("a reader that is behind by two versions", "files behind ports", "how far it is\nbehind"),
    ),
    "face": Tic(
        r"\bfaces?\b",
        "`API`, `interface`, `handle`, `client`",
        ("The blocking face of a client.",),
        ("interfaces", "surface"),
    ),
    "so-many": Tic(
        r"\bso\s+(?:many|much)\b(?!(?:\s+[\w-]+){0,5}\s+that\b)",
        "the number: `n`, `this many`, `up to the limit`; or name the amount",
        ("at least so many tasks", "runs of so\nmuch"),
        ("so many entries that it waits", "so much of it is lost that no quorum remains"),
    ),
    "again": Tic(
        r"\b(?:made|make|makes|making|write|writes|written|wrote|writing|asked|asks?|asking|says?|said|"
        r"begun|begins?|began|built|done|does|counted|cut|drawn|given|gives?|put|told|tells?|laid)"
        r"\s+again\b",
        "`created anew` is `re-created`; `rewritten`, `retried`, `repeated`, `restarted`",
        ("deleted and made again", "for writing again", "it is asked\nagain"),
        ("try again", "run the job again", "read it again"),
    ),
    "anew": Tic(r"\banew\b", "`again`, or a verb with `re-`", ("encoded anew",), ("a new one",)),
    "doubles": Tic(
        r"\b(?:without|no|are|of|has|have|hold|holds|makes?|leaves?|with)\s+(?:a\s+)?doubles?\b|"
        r"\b(?:a|its)\s+double\b(?!\s+(?:column|precision|type|value|quote))|"
        r"\bdoubles\s+(?:are|of|in|that|come)\b",
        "`duplicate`",
        ("writing again without doubles", "beside its double on one", "for a\ndouble."),
        ("it doubles up to the limit", "float and double"),
    ),
    "chance": Tic(
        r"\bchance\b",
        "`random numbers`, `probability`, `opportunity`",
        ("the stores, settings, chance.",),
        ("chances",),
    ),
    "way-of": Tic(
        r"\bthe\s+ways?\s+(?:of|to|from|back|out|in|there)\b|\b(?:on|of)\s+(?:its|their|the|his)\s+"
        r"ways?\b|\bgive\s+way\b|\bin\s+the\s+way\b",
        "`path`, `transport`, `in flight`, `pending`",
        ("The way of an add.", "the way to bookies", "replies on\ntheir way"),
        ("in the same way", "a way to do it", "all the way", "under way"),
    ),
    "take-back": Tic(
        r"\btak(?:es?|en|ing)\s+(?:(?:that|it|this|them|the\s+\w+)\s+)?back\b|\btook\s+(?:\w+\s+)?back\b",
        "`undo`, `unregister`, `withdraw`",
        ("returns what takes that back", "take back the mark"),
        ("takes a back-up",),
    ),
    "of-which": Tic(
        r"(?:^|[.;:]\s+)(?-i:Of)\s+(?:which|what|whom)\b",
        "begin with the subject",
        ("Of which that cannot be determined is left out.",),
        ("two, of which one is open", "two\nof which one is open"),
    ),
    "and-no": Tic(
        r",\s+and\s+no\s+(?:\d|\{)",
        "state what does not exist: `version 99 does not exist`",
        ("log x has versions 0 to 6, and no 99", "has {}, and no {}"),
        ("and no entry",),
    ),
    "slip-of-the-pen": Tic(
        r"\bslip\s+of\s+the\s+pen\b", "`probably a typo`", ("which may be a slip of\nthe pen",)
    ),
    "argument-of-the": Tic(
        r"^[ \t]*[\w*]+:[ ]+(?:Of|To|From|In|For|By)[ ]+(?:the|a|an|its|their|this|one|all)[ ]+"
        r"[\w-]+\.?[ ]*$",
        "drop the line: it adds nothing to the parameter's name",
        ("Args:\n    log_id: Of the log.", "ledger_id: Of the ledger."),
        ("log_id: Of the log whose ranges are merged.", "kind: The kind of the log."),
    ),
    "see-only": Tic(
        rf"\A\s*(?:[A-Z][\w ]{{0,12}}; )?[Ss]ee {NAME}+\.?\s*\Z",
        "write the sentence, or derive the docstring from its source",
        (f"See {NAME * 4}.",),
        (f"The end. See {NAME * 4}.", "See the page."),
    ),
}


@dataclass(frozen=True)
class Prose:
    """Connected text of a file, and the line at which it begins.

    Attributes:
        kind: `docstring`, `string`, `comment` or `page`.
    """

    line: int
    text: str
    is_one_line: bool = False
    kind: str = "page"


@dataclass(frozen=True)
class Hit:
    """A place of a tic."""

    tic: str
    path: str
    line: int
    text: str
    kind: str = "page"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.tic}: {self.text}"


_PATTERNS: Final = {
    name: re.compile(tic.pattern, re.IGNORECASE | re.MULTILINE) for name, tic in TICS.items()
}
_IN_BACKTICKS = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_FENCED = re.compile(r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$")
_WITH_TEXT = (ast.Constant, ast.JoinedStr, ast.Expr)
_LINK_TARGET = re.compile(r"(?<=\])\([^)\n]*\)|<[^>\n]+>")


def _hidden(text: str) -> str:
    """The text with the parts in backticks replaced. Its length and its lines stay the same."""
    return _IN_BACKTICKS.sub(lambda found: re.sub(r"[^\n]", NAME, found.group()), text)


def _is_prose(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]\s+\S*[A-Za-z]", text))


def _literal(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )


def _strings(text: str) -> Iterator[Prose]:
    """Docstrings and other strings; an f-string once, with its fields as `{}`."""
    nodes = [node for node in nodes_of(text) if isinstance(node, _WITH_TEXT)]
    parts = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
        for inner in walk(node)
        if inner is not node and isinstance(inner, ast.Constant | ast.JoinedStr)
    }
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    lines = text.splitlines()
    for node in nodes:
        is_text = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
        if not is_text or id(node) in parts:
            continue
        assert isinstance(node, ast.Constant | ast.JoinedStr)
        value = _literal(node)
        if _is_prose(value):
            is_block = lines[node.lineno - 1][node.col_offset :].lstrip("rbfRBF").startswith('"""')
            kind = "docstring" if id(node) in docstrings else "string"
            yield Prose(node.lineno, value, is_one_line=not is_block, kind=kind)


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """The line of each comment of a module, its words, and whether the line has nothing else."""
    if "#" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#:").strip()
            words = re.sub(r"\b(?:noqa|type: ignore|fmt|pragma)\b.*?(?= - |$)", "", words)
            yield token.start[0], words, not token.line[: token.start[1]].strip()


def _comments_of_make(text: str) -> Iterator[tuple[int, str, bool]]:
    """The same for a Makefile, whose recipes may have a `#` within a word."""
    for line, source in enumerate(text.splitlines(), 1):
        if found := re.search(r"(?:^|(?<=\s))#+\s+(.*)", source):
            yield line, found[1], found.start() == 0


def _joined(comments: Iterable[tuple[int, str, bool]]) -> Iterator[Prose]:
    """Comments; those on lines that follow each other and hold nothing else are one text."""
    begun: Prose | None = None
    last = 0  # of the last comment, if nothing else is on its line
    for line, words, is_alone in comments:
        if begun is not None and is_alone and line == last + 1:
            begun = Prose(begun.line, f"{begun.text}\n{words}", kind="comment")
        else:
            if begun is not None:
                yield begun
            begun = Prose(line, words, kind="comment")
        last = line if is_alone else 0
    if begun is not None:
        yield begun


def _cells(text: str) -> Iterator[Prose]:
    """The cells of Markdown of a notebook, which has a line for each line of a cell."""
    written = [line.strip().rstrip(",") for line in text.splitlines()]
    after = 0
    for cell in json.loads(text)["cells"]:
        if cell["source"]:
            first = json.dumps(cell["source"][0], ensure_ascii=False)
            after = written.index(first, after) + 1
            if cell["cell_type"] == "markdown":
                yield Prose(after, "".join(cell["source"]))


def prose_in(path: str, text: str) -> list[Prose]:
    """The prose of a file; its name decides how it is read."""
    if path.endswith(".py"):
        return [*_strings(text), *_joined(_comments(text))]
    if path.endswith("Makefile"):
        return [*_joined(_comments_of_make(text))]
    if path.endswith(".ipynb"):
        return [*_cells(text)]
    without_code = _FENCED.sub(lambda found: "\n" * found.group().count("\n"), text)
    return [Prose(1, _LINK_TARGET.sub(lambda found: NAME * len(found.group()), without_code))]


def hits_in(path: str, text: str, names: Iterable[str] = tuple(TICS)) -> list[Hit]:
    """All places of these tics in a file's text, by line."""
    found = []
    for prose in prose_in(path, text):
        shown = _hidden(prose.text)
        for name in names:
            for match in _PATTERNS[name].finditer(shown):
                start = match.start() + len(match.group()) - len(match.group().lstrip())
                offset = 0 if prose.is_one_line else shown.count("\n", 0, start)
                begin = prose.text.rfind("\n", 0, start) + 1
                end = prose.text.find("\n", match.end())
                around = prose.text[begin : end if end >= 0 else None]
                found.append(
                    Hit(name, path, prose.line + offset, " ".join(around.split()), prose.kind)
                )
    return sorted(found, key=lambda hit: (hit.line, hit.tic))


def hits(root: Path, paths: Iterable[str], names: Iterable[str] = tuple(TICS)) -> list[Hit]:
    """All places of the files, in their order; `paths` are relative to `root`."""
    wanted = tuple(names)
    return [hit for path in paths for hit in hits_in(path, (root / path).read_text(), wanted)]
