"""Many requests at once, with peers that fail and disks that are short or fail."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.crash.crowd import Crowd, short_turns

SEEDS = 160


@pytest.mark.parametrize("part", range(2))
def test_whatever_others_do_every_request_is_answered(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, 2):
        crowd = Crowd(seed)
        try:
            with short_turns():
                crowd.play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += crowd.seen
    for mark in ("raised", "given up", "short", "failed", "stopped", "let go"):
        assert seen[mark] > 0, (mark, seen)
