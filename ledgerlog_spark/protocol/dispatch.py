"""Tables that map a phase and an event type to the method of a machine that handles the event.

`handle` looks up the method in the table. Tests iterate over the tables, and pages of the docs are
generated from them. A table contains the methods themselves and follows the class of its machine.
So mypy checks for each row that the method exists, belongs to this machine, accepts the event and
returns effects of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from ledgerlog_spark.errors import LocalProtocolError

M = TypeVar("M")
"""The class of a machine."""

E = TypeVar("E")
"""The type of an event, or a union of event types."""

F = TypeVar("F")
"""The type of the effects of a machine."""


class Unhandled(Enum):
    """What `handle` does with an event that has no handler in a phase."""

    IGNORED = "ignored"
    """The reply arrives too late to matter, so the machine ignores it."""

    REFUSED = "refused"
    """The caller has a bug: `handle` raises `LocalProtocolError`, and nothing changes."""


IGNORED: Final = Unhandled.IGNORED
REFUSED: Final = Unhandled.REFUSED

Handler = Callable[[M, Any], list[F]]
"""A method of a machine that handles one event type. The signature of `on` lets mypy check the
type of the event.
"""

Handled = tuple[type, Handler[M, F]]
"""An event type and its handler."""

Row = Mapping[type, Handler[M, F] | Unhandled]
"""Maps each event type of a phase to its handler, to IGNORED or to REFUSED."""

Table = Mapping[Enum, Row[M, F]]
"""Maps each phase to its row. An event that the row does not contain fails an assertion."""


def on(event: type[E], handler: Callable[[M, E], list[F]]) -> Handled[M, F]:
    """Pair an event type with the method that handles it."""
    return event, handler


def on_each(
    events: Iterable[type[E]], handler: Callable[[M, E], list[F]]
) -> tuple[Handled[M, F], ...]:
    """Pair several event types with the same method, which handles all of them."""
    return tuple((event, handler) for event in events)


def row(
    *handled: Handled[M, F], ignored: tuple[type, ...] = (), refused: tuple[type, ...] = ()
) -> Row[M, F]:
    """Return the row of one phase. A handler has priority over `ignored` and `refused`."""
    return {
        **dict.fromkeys(ignored, IGNORED),
        **dict.fromkeys(refused, REFUSED),
        **dict(handled),
    }


class TableMachine(Generic[E, F]):
    """A machine that finds its handlers in a table."""

    table: ClassVar[Table[Any, Any]]
    phase: Enum

    def handle(self, event: E) -> list[F]:
        """Handle one event, and return the effects that the host then performs in order.

        Raises:
            LocalProtocolError: The phase does not allow this call. Nothing has changed.
            AssertionError: The event is impossible in this phase, so ledgerlog has a bug (clause 9
                of the contract in `protocol/__init__.py`).
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
