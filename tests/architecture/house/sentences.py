"""Random sentences, for a reader who counts the sentences that need a second reading.

`python -m tests.architecture.house --sentences 40 --seed 1` prints 40 sentences of pages,
docstrings, comments and messages, each with its place. The same seed draws the same sentences of
the same texts.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.architecture.house.areas import prose_of
from tests.architecture.house.tics import prose_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORDS_MIN: Final = 5
"""Shorter pieces are headings, names and single words."""

_BLOCK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*#>|]|\d+\.|\w+:)[ \t])")
_SENTENCE = re.compile(r"(?<=[.!?:])\**[ \t\n]+(?=[A-Z`*{\[(])|[ \t]+\|[ \t]+")
_MARKUP = re.compile(r"^[-*#>|\s]+|[|\s]+$|<a id=[^>]*></a>")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the line at which its text begins.

    Attributes:
        code: The code in front of a comment, which the comment explains.
    """

    path: str
    line: int
    text: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\n    {self.code}{self.text}"


def sentences_in(path: str, text: str) -> Iterator[Sentence]:
    """The sentences of a file's prose, in order; a cell of a table counts as one."""
    lines = text.splitlines()
    for prose in prose_in(path, text):
        code = lines[prose.line - 1].partition("#")[0].strip() if prose.kind == "comment" else ""
        start = 0
        for block in _BLOCK.split(prose.text):
            place = prose.text.index(block, start)
            start = place + len(block)
            line = prose.line + prose.text.count("\n", 0, place) * (not prose.is_one_line)
            for piece in _SENTENCE.split(block):
                shown = " ".join(_MARKUP.sub("", piece).split())
                if len(re.findall(r"[A-Za-z]+", shown)) >= WORDS_MIN:
                    yield Sentence(path, line, shown, f"{code}  # " if code else "")


def drawn(root: Path, count: int, seed: int) -> list[Sentence]:
    """`count` different sentences, or all if there are fewer."""
    found = [
        sentence
        for path in prose_of(root)
        for sentence in sentences_in(path, (root / path).read_text())
    ]
    return random.Random(seed).sample(found, min(count, len(found)))
