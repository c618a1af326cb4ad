"""Messages in virtual time: delayed, reordered, dropped, duplicated, or held by a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.sim.faults import Faults
from tests.sim.runtime import Scheduler


@dataclass(slots=True)
class Message:
    """One message in flight.

    Attributes:
        kind: add, read, cas, load, ... or one of these names with `_reply`.
        entry_id: The first entry of the message; None for a message without entries.
        fence: Whether the message is a fencing read.
        is_recovery: Whether the message is a recovery add.
    """

    kind: str
    source: str
    target: str
    deliver: Callable[[], None]
    entry_id: int | None = None
    fence: bool = False
    is_recovery: bool = False
    number: int = 0

    def __str__(self) -> str:
        about = "" if self.entry_id is None else f" e{self.entry_id}"
        return f"{self.kind}{about} {self.source}>{self.target} #{self.number}"


Match = Callable[[Message], bool]


def matching(
    kind: str | None = None,
    source: str | None = None,
    target: str | None = None,
    entry_id: int | None = None,
    *,
    fence: bool | None = None,
    is_recovery: bool | None = None,
) -> Match:
    """Return a match for messages with these fields; None matches any value."""

    def match(message: Message) -> bool:
        return (
            (kind is None or message.kind == kind)
            and (source is None or message.source == source)
            and (target is None or message.target == target)
            and (entry_id is None or message.entry_id == entry_id)
            and (fence is None or message.fence == fence)
            and (is_recovery is None or message.is_recovery == is_recovery)
        )

    return match


@dataclass
class Network:
    """All links between clients, bookies and the store.

    Attributes:
        cut: (source, target) pairs between which no message passes.
        drops: Matches of scripts: a matching message is lost.
        holds: Matches of scripts: a matching message waits in `held` until `release`.
    """

    scheduler: Scheduler
    faults: Faults
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    tail_rate: float = 0.0
    tail_ms: int = 0
    cut: dict[tuple[str, str], int] = field(default_factory=dict)
    drops: list[Match] = field(default_factory=list)
    holds: list[Match] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    on_event: Callable[[str], None] | None = None

    def send(self, message: Message) -> None:
        key = (message.kind, message.source, message.target)
        message.number = self.counts[key] = self.counts.get(key, 0) + 1
        if any(match(message) for match in self.drops):
            self.faults.lasts("partition")
            self._note("lost", message)
            return
        if any(match(message) for match in self.holds):
            self.faults.lasts("partition")
            self._note("held", message)
            self.held.append(message)
            return
        name = (message.kind, message.source, message.target, message.number)
        if self.cut and self.cut.get((message.source, message.target)):
            self._note("cut off", message)
            return
        if self.faults.happens(self.drop_rate, "drop", *name):
            self._note("dropped", message)
            return
        self._schedule(message, *name)
        if self.faults.happens(self.duplicate_rate, "duplicate", *name):
            self._note("doubled", message)
            self._schedule(message, *name, "again")

    def _schedule(self, message: Message, *name: object) -> None:
        delay_us = 500
        if self.faults.has_jitter:
            delay_us = 100 + int(1_400 * self.faults.draws.uniform("delay", *name))
        if self.faults.happens(self.tail_rate, "tail", *name):
            delay_us += int(1_000 * self.tail_ms * self.faults.draws.uniform("tail_size", *name))
        self.scheduler.call_later(delay_us, lambda: self._deliver(message))

    def _deliver(self, message: Message) -> None:
        self._note("deliver", message)
        message.deliver()

    def release(self, match: Match) -> int:
        """Deliver the matching held messages, and count them."""
        free = [message for message in self.held if match(message)]
        self.held = [message for message in self.held if not match(message)]
        for message in free:
            self.scheduler.call_later(500, partial(self._deliver, message))
        return len(free)

    def part(self, left: tuple[str, ...], right: tuple[str, ...], *, both_ways: bool) -> None:
        for one in left:
            for other in right:
                self._count(one, other, 1)
                if both_ways:
                    self._count(other, one, 1)

    def join(self, left: tuple[str, ...], right: tuple[str, ...], *, both_ways: bool) -> None:
        for one in left:
            for other in right:
                self._count(one, other, -1)
                if both_ways:
                    self._count(other, one, -1)

    def _count(self, source: str, target: str, change: int) -> None:
        self.cut[(source, target)] = self.cut.get((source, target), 0) + change

    def heal(self) -> None:
        self.cut.clear()
        self.drops.clear()
        self.holds.clear()
        self.release(lambda _: True)

    def _note(self, what: str, message: Message) -> None:
        if self.on_event is not None:
            self.on_event(f"{what} {message}")
