"""Prints figures: as a table for each script, or as JSON objects, one on each line."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One figure, with its goal, the limit of the machine, and the figure of the peer.

    Attributes:
        value: Median of the rounds, in `unit`.
        goal: The project's goal: a maximum if `lower_is_better`, otherwise a minimum.
        limit: The limit of the machine in the same run, in `unit`. `limit_of` describes the work
            for which the limit was measured.
        peer: The figure of the peer in the same run, in `unit`, or None if the peer did not run.
        goal_to_peer: The goal for the ratio of `value` to `peer`. It replaces `goal`.
    """

    question: str
    value: float
    unit: str
    rounds: tuple[float, ...]
    goal: float | None = None
    lower_is_better: bool = False
    limit: float | None = None
    limit_of: str = ""
    peer: float | None = None
    peer_name: str = ""
    goal_to_peer: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached, or None if there is no goal or no figure of the peer."""
        if self.goal_to_peer is not None:
            if self.peer is None:
                return None
            ratio = self.value / self.peer
            return (
                ratio <= self.goal_to_peer if self.lower_is_better else ratio >= self.goal_to_peer
            )
        if self.goal is None:
            return None
        return self.value <= self.goal if self.lower_is_better else self.value >= self.goal


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _goal(figure: Figure, bound: str) -> str:
    if figure.goal_to_peer is not None:
        return f"{bound} {figure.goal_to_peer:g} x the peer"
    return f"{bound} {_number(figure.goal)}" if figure.goal is not None else "-"


def show_ratios(
    title: str,
    rows: list[tuple[str, float, float, float, int]],
    ratio_min: float,
    *,
    as_json: bool,
) -> None:
    """Print the rows: name, median of ratios, low and high end of an interval, number of pairs."""
    if as_json:
        for name, middle, low, high, pairs in rows:
            print(
                json.dumps(
                    {"figure": name, "ratio": middle, "low": low, "high": high, "pairs": pairs}
                )
            )
        return
    table = Table(title=f"{title} (more than 1 is better)")
    table.add_column("figure")
    for name in ("median", "95 %", "pairs"):
        table.add_column(name, justify="right")
    for name, middle, low, high, pairs in rows:
        colour = "green" if middle >= ratio_min else "red"
        table.add_row(name, f"[{colour}]{middle:.3f} x[/]", f"{low:.3f} to {high:.3f}", str(pairs))
    Console(width=120).print(table)


def show(title: str, figures: list[Figure], *, as_json: bool) -> None:
    """Print figures, as text for people or as JSON for scripts."""
    if as_json:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        for figure in figures:
            print(json.dumps({**asdict(figure), "reached": figure.reached, "commit": commit}))
        return
    table = Table(title=f"{title} ({platform.processor() or platform.machine()}, medians)")
    table.add_column("question")
    for name in ("figure", "goal", "machine's limit", "peer"):
        table.add_column(name, justify="right")
    for f in figures:
        colour = {True: "green", False: "red", None: "white"}[f.reached]
        bound = "at most" if f.lower_is_better else "at least"
        table.add_row(
            f.question,
            f"[{colour}]{_number(f.value)} {f.unit}[/]\n"
            f"{_number(min(f.rounds))}..{_number(max(f.rounds))}",
            _goal(f, bound),
            f"{_number(f.limit)}\n{f.limit_of}" if f.limit is not None else "-",
            f"{_number(f.peer)}\n{f.peer_name}" if f.peer is not None else "-",
        )
    Console(width=120).print(table)
