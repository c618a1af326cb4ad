"""The pages whose commands are run, and the blocks of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.docs.blocks import Block, blocks_of
from tests.docs.reader import Reader
from tests.fixtures.command_line import ROOT

if TYPE_CHECKING:
    from pathlib import Path

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "how-to").glob("*.md"))]


def blocks_to_run(page: Path) -> list[Block]:
    """The blocks of a page. README's Python has a separate test, which reads its warnings too."""
    return [
        block
        for block in blocks_of(page)
        if not block.reason and not (page == README and block.language == "python")
    ]


RUN = [page for page in PAGES if blocks_to_run(page)]
STARTS_SPARK = re.compile(r"\bpyspark\b|\bspark-submit\b")
WITH_SPARK = [
    page for page in RUN if any(STARTS_SPARK.search(block.code) for block in blocks_to_run(page))
]


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(page: Path, directory: Path) -> None:
    """Run every block of the page in order, and check its output."""
    with Reader(directory) as reader:
        for block in blocks_to_run(page):
            reader.run(block)
