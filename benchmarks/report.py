"""How figures are printed: one table a script, or one JSON object a line."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One answer and what stands beside it.

    Attributes:
        value: Median of the rounds, in `unit`.
        goal: What the project asks for; at most when `lower_is_better`, else at least.
        limit: What the machine did in the same run, in `unit`; `limit_of` says at what.
        peer: What the peer did in the same run, in `unit`, None when it did not run.
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

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met, None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.lower_is_better else self.value >= self.goal


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def show(title: str, figures: list[Figure], *, as_json: bool) -> None:
    """Print figures for people, or for scripts."""
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
            f"{bound} {_number(f.goal)}" if f.goal is not None else "-",
            f"{_number(f.limit)}\n{f.limit_of}" if f.limit is not None else "-",
            f"{_number(f.peer)}\n{f.peer_name}" if f.peer is not None else "-",
        )
    Console(width=120).print(table)
