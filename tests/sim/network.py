"""Messages in virtual time: delayed, reordered, dropped, doubled, cut off, or held by a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.sim.faults import Faults
from tests.sim.runtime import Scheduler


@dataclass(slots=True)
class Message:
    """One message on its way.

    Attributes:
        kind: add, read, cas, load, ... and the same with `_reply`.
        entry_id: The first entry it is about, None where it is about none.
        fence: Of a read.
        is_recovery: Of an add.
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
    """Messages with these fields; None stands for any."""

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
    """All links.

    Attributes:
        cut: (source, target) pairs that nothing passes.
        drops: Scripts' rules: what matches is lost.
        holds: Scripts' rules: what matches waits in `held` for `release`.
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
        """Let what scripts hold go on; how many messages that were."""
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
