"""All mutations: each module of this package that has a list MUTATIONS adds it."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from typing import TYPE_CHECKING

import tests.mutation as package
from benchmarks.options import positive

if TYPE_CHECKING:
    from tests.mutation.mutation import Mutation


def all_mutations() -> list[Mutation]:
    """All mutations, module by module."""
    found: list[Mutation] = []
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            imported = importlib.import_module(f"{package.__name__}.{module.name}")
            found += getattr(imported, "MUTATIONS", [])
    return found


def part_of(text: str) -> tuple[int, int]:
    """Parse the number of a part, from 1, and the number of all parts."""
    part, parts = map(positive, text.split("/"))
    if part > parts:
        raise argparse.ArgumentTypeError(f"there is no part {part} of {parts}")
    return part, parts
