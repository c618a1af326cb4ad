"""Phases x events as a table that can be printed, walked by a test, and looked up by `handle`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

IGNORED = "ignored"
"""The reply comes too late to matter, on purpose."""

REFUSED = "refused"
"""The caller's bug: `LocalProtocolError`, and nothing changes."""

Row = dict[type, str]
"""Event type to the name of the method that handles it, or IGNORED, or REFUSED."""

Table = dict[Enum, Row]
"""A pair that is missing cannot happen; if it does it is our bug and fails an assertion."""


def row(handled: Mapping[type, str], *, ignored: tuple[type, ...] = ()) -> Row:
    """One phase's row: what is handled, and what is ignored on purpose."""
    return {**dict.fromkeys(ignored, IGNORED), **handled}


def dispatch(machine: Any, table: Table, phase: Enum, event: Any) -> list[Any]:
    """The effects of `event` on `machine`, which is in `phase`.

    Raises:
        LocalProtocolError: The caller may not ask for this now; nothing was changed.
        AssertionError: The pair cannot happen.
    """
    name = table[phase].get(type(event))
    if name == IGNORED:
        return []
    assert name is not None, f"{type(machine).__name__} in {phase.name} cannot get {event!r}"
    if name == REFUSED:
        raise LocalProtocolError(
            f"{type(event).__name__} is not allowed while the {type(machine).__name__} is "
            f"{phase.name}: look at its phase, or at can_add, before asking",
            phase=phase.name,
        )
    effects: list[Any] = getattr(machine, name)(event)
    return effects
