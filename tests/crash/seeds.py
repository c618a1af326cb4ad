"""Plays runs with different seeds, which together must reach certain states."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SEEDS = 120


def play_all(
    seeds: Iterable[int], play: Callable[[int], Counter[str]], marks: Iterable[str]
) -> None:
    """Play each seed; a failure names the seed.

    Args:
        seeds: The seeds, in the order in which they are played.
        play: Plays a seed, and returns the situations that occurred.
        marks: Situations that must occur, because the runs would prove little without them.
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
