"""Tables of phases x events, which `handle` looks up, tests walk and docs are printed from.

A table contains the methods themselves. The table is below its class, and mypy checks each row: the
method exists, it belongs to the table's machine, it accepts the event, and it returns its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from ledgerlog_spark.errors import LocalProtocolError

M = TypeVar("M")
"""A machine."""

E = TypeVar("E")
"""An event, or several."""

F = TypeVar("F")
"""The effects of a machine."""


class Unhandled(Enum):
    """Why an event has no handler in a phase."""

    IGNORED = "ignored"
    """The reply comes too late to matter, on purpose."""

    REFUSED = "refused"
    """The caller's bug: raises `LocalProtocolError`, and nothing changes."""


IGNORED: Final = Unhandled.IGNORED
REFUSED: Final = Unhandled.REFUSED

Handler = Callable[[M, Any], list[F]]
"""A method of a machine that handles one event type; `on` checks the type."""

Handled = tuple[type, Handler[M, F]]
"""An event's type and its handler."""

Row = Mapping[type, Handler[M, F] | Unhandled]
"""Event type to its handler, or IGNORED, or REFUSED."""

Table = Mapping[Enum, Row[M, F]]
"""A missing pair cannot happen; if it does, it is our bug and fails an assertion."""


def on(event: type[E], handler: Callable[[M, E], list[F]]) -> Handled[M, F]:
    """The method that handles an event type."""
    return event, handler


def on_each(
    events: Iterable[type[E]], handler: Callable[[M, E], list[F]]
) -> tuple[Handled[M, F], ...]:
    """One method that handles several event types."""
    return tuple((event, handler) for event in events)


def row(
    *handled: Handled[M, F], ignored: tuple[type, ...] = (), refused: tuple[type, ...] = ()
) -> Row[M, F]:
    """One phase's row; a type with a handler is not ignored."""
    return {
        **dict.fromkeys(ignored, IGNORED),
        **dict.fromkeys(refused, REFUSED),
        **dict(handled),
    }


class TableMachine(Generic[E, F]):
    """A machine with its handlers in a table."""

    table: ClassVar[Table[Any, Any]]
    phase: Enum

    def handle(self, event: E) -> list[F]:
        """Handle one event; the host performs the effects in order after this returned.

        Raises:
            LocalProtocolError: The caller may not request this now; nothing was changed.
            AssertionError: Our bug (contract, clause 9): the pair cannot happen.
        """
        handler = self.table[self.phase].get(type(event))
        if handler is IGNORED:
            return []
        kind, phase = type(self).__name__, self.phase
        assert handler is not None, f"{kind} in {phase.name} cannot get {event!r}"
        if handler is REFUSED:
            raise LocalProtocolError(
                f"{type(event).__name__} is not allowed while the {kind} is {phase.name}: check "
                "its phase, or can_add, first",
                phase=phase.name,
            )
        effects: list[F] = handler(self, event)
        return effects
