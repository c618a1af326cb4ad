"""Reads texts of the reference from docstrings."""

from __future__ import annotations

import inspect
import re


def attributes(described: type) -> dict[str, str]:
    """Return the name and the meaning of each attribute below `Attributes:`."""
    text = (inspect.getdoc(described) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def first_paragraph(described: object) -> str:
    """Return the summary of a docstring, on one line."""
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())
