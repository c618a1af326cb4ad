"""Compares names of columns and fields as Spark does: by default without regard to case.

A log never has two columns, or two fields of one struct, whose names differ only in case. So a name
in any case identifies one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def place_of(name: str, names: Sequence[str]) -> int | None:
    """The index of the same name, or of the first name that differs only in case, or None."""
    if name in names:
        return names.index(name)
    lower = name.lower()
    return next((place for place, other in enumerate(names) if other.lower() == lower), None)


def first_double(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that Spark treats as equal; None when all differ."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    return None
