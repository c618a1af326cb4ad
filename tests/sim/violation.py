"""The error of an invariant that does not hold."""

from __future__ import annotations


class Violation(AssertionError):  # noqa: N818 - it is one
    """An invariant does not hold; `name` is the number of the invariant."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.name, self.message)


def require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise Violation(name, message)
