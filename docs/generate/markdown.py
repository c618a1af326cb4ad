"""Writes tables and values in Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown. Each cell must be Markdown on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Return the text on one line, with each `|` escaped."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(value: object) -> str:
    """Return a value, formatted as code; an empty text if the value is None."""
    return "" if value is None else f"`{value}`"


def thousands(value: object) -> str:
    """Return a default value as a text for readers, with commas in integers."""
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(f"{value:,}" if isinstance(value, int) else value)
