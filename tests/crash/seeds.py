"""Plays runs with different seeds, which together must reach certain states."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SEEDS = 160


def play_all(
    seeds: Iterable[int], play: Callable[[int], Counter[str]], marks: Iterable[str]
) -> None:
    """Play each seed; a failure names its own.

    Args:
        seeds: What is played, in this order.
        play: Says which situations were met.
        marks: Situations without which the runs would prove little.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    missed = [mark for mark in marks if not seen[mark]]
    assert not missed, (missed, seen)
