"""All mutations: each module of this package that has a list MUTATIONS adds it."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import tests.mutation as package

if TYPE_CHECKING:
    from tests.mutation.mutation import Mutation


def all_mutations() -> list[Mutation]:
    """Every one, module by module."""
    found: list[Mutation] = []
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            imported = importlib.import_module(f"{package.__name__}.{module.name}")
            found += getattr(imported, "MUTATIONS", [])
    return found
