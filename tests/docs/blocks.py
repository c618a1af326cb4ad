"""The code of a page: the blocks that run, their output, and the blocks that cannot run.

Every fenced block of `bash` or `python` runs, in the order of the page. A `text` block directly
after a block contains the expected output: each line in this order, with `...` for any text. A
comment in the line above a block marks an exception:

    <!-- not run: the reason -->
    <!-- own terminal until: text that it prints when it is ready -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LANGUAGES = ("bash", "python")
FENCED = re.compile(
    r"(?:^ *<!-- (?P<kind>not run|own terminal until): (?P<words>[^\n]+?) -->\n+)?"
    r"^ *```(?P<language>[\w-]*)\n(?P<code>.*?)^ *```$"
    r"(?:\n+^ *```text\n(?P<output>.*?)^ *```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block that a reader should run.

    Attributes:
        line: The line where its code begins.
        output: The expected output; empty if the page shows none.
        reason: Why it cannot run here; empty if it can.
        until: The text that a server prints when it is ready; empty if the block ends by itself.
    """

    language: str
    code: str
    line: int
    output: tuple[str, ...] = ()
    reason: str = ""
    until: str = ""


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page that a reader should run."""
    text = page.read_text()
    return [
        Block(
            language=match["language"],
            code=dedent(match["code"]),
            line=text.count("\n", 0, match.start("code")) + 1,
            output=tuple(dedent(match["output"] or "").splitlines()),
            reason=match["words"] if match["kind"] == "not run" else "",
            until=match["words"] if match["kind"] == "own terminal until" else "",
        )
        for match in FENCED.finditer(text)
        if match["language"] in LANGUAGES
    ]


def missing_line(expected: tuple[str, ...], printed: str) -> str | None:
    """The first expected line that was not printed after the earlier ones."""
    lines = iter(printed.splitlines())
    for wanted in expected:
        words = re.split(r"\s+", wanted.strip())
        pattern = re.compile(r"\s+".join(map(re.escape, words)).replace(r"\.\.\.", ".*"))
        if wanted.strip() and not any(pattern.fullmatch(line.strip()) for line in lines):
            return wanted
    return None
