"""Which logs a read is of: those that it names, or all that match a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Logs by name or by pattern.

    Attributes:
        names: The logs that are named; they have to exist.
        pattern: A regular expression that the whole name matches; None where logs are named. What
            it matches may come later, or never.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def among(self, existing: Iterable[str]) -> tuple[str, ...]:
        """The names that are selected, of those that exist when they go by pattern."""
        if self.pattern is None:
            return self.names
        return tuple(name for name in existing if name in self)

    def __contains__(self, name: str) -> bool:
        if self.pattern is None:
            return name in self.names
        return re.fullmatch(self.pattern, name) is not None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"logs that match {self.pattern!r}"
        return f"log {', '.join(map(repr, self.names))}"
