"""The machines answer in every story of this folder as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.stories import PLAYERS, STORIES, play

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "ledgers": "PROTOCOL.md",
    "logs": "LOGS.md",
    "leaders": "LOGS.md",
    "audits": "AUTORECOVERY.md",
}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_story_goes_as_written(path: Path) -> None:
    text = path.read_text()
    assert play(path) == text, f"look at it, then: python -m tests.transcripts --rewrite {path}"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_wrong_answer_in_a_story_is_noticed(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[-1] = f"not {lines[-1]}"
    assert play(path, "".join(lines)) == path.read_text()


@pytest.mark.parametrize("folder", PLAYERS)
def test_every_story_is_cited_by_a_rule(folder: str) -> None:
    text = (DOCS / PAGES[folder]).read_text()
    stories = [path.name for path in STORIES if path.parent.name == folder]
    assert stories
    assert [name for name in stories if name not in text] == []
