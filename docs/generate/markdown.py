"""Markdown tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the cells are Markdown of one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text on one line, with each `|` escaped."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(value: object) -> str:
    """Return a value, formatted as code. The text is empty if the value is None."""
    return "" if value is None else f"`{value}`"


def thousands(value: object) -> str:
    """Return a default value as people read it: integers with commas."""
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(f"{value:,}" if isinstance(value, int) else value)
