"""Finds fewer deviations that still break the same invariant (ddmin)."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.faults import JITTER


def shrink(
    deviations: list[str],
    still_fails: Callable[[frozenset[str]], bool],
    *,
    runs_max: int = 400,
) -> list[str]:
    """Return the deviations that are needed to break the invariant.

    Args:
        deviations: Names of all deviations that happened. `JITTER` is added as one more.
        still_fails: Returns whether a run without the given deviations breaks the same invariant.
            In such a run, new deviations may happen, which do not matter.
        runs_max: Number of runs after which the best result so far is returned.
    """
    everything = [*dict.fromkeys(deviations), JITTER]
    needed = everything
    runs = 0

    def fails_with(kept: list[str]) -> bool:
        nonlocal runs
        runs += 1
        left_out = frozenset(everything) - frozenset(kept)
        return still_fails(left_out)

    pieces = 2
    while len(needed) >= 2 and runs < runs_max:
        size = max(1, len(needed) // pieces)
        for start in range(0, len(needed), size):
            kept = needed[:start] + needed[start + size :]
            if runs >= runs_max:
                break
            if fails_with(kept):
                needed = kept
                pieces = max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(needed), pieces * 2)
    return needed
