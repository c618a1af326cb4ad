"""Every story in this folder goes as it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.player import STORIES, play


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_written(path: Path) -> None:
    text = path.read_text()
    assert play(text) == text, f"look at it, then: python -m tests.transcripts --rewrite {path}"


def test_a_wrong_answer_in_a_story_is_noticed() -> None:
    text = "w ledger e=3 w=3 a=2\nw add 1\n----\nadd b0@0 0..0 lac=5\n"
    assert play(text) != text


def test_every_story_is_cited_by_a_rule() -> None:
    text = (STORIES.parents[1] / "docs" / "PROTOCOL.md").read_text()
    assert [path.name for path in STORIES.glob("*.txt") if path.name not in text] == []
