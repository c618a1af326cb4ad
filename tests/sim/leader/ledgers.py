"""A small, exact model of ledgers for leaders: adds in flight, quorums, fences, seals, closes.

It gives only the guarantees of docs/PROTOCOL.md. An entry that is on its ack quorum before the
fence survives every seal. Entries in flight may survive or be lost, in order. The fence ends all
adds. The first close wins. The writer closes the ledger at its own last add confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerlog_spark.model import NO_ENTRY, LedgerState
from ledgerlog_spark.protocol.leader.messages import LedgerEnd

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


@dataclass(frozen=True)
class Entry:
    """One entry of a leader log. `name` identifies the append and its leader."""

    name: tuple[int, int] | bytes
    first_offset: int
    records: int
    append_time_ms: int

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.records


@dataclass
class SimLedger:
    """A ledger and its only writer.

    Attributes:
        writer: Number of the leader that created it.
        stored: The sent entries, in order. Those from index `quorum` on are in flight.
        quorum: Number of entries on their ack quorum.
        confirmed: Number of entries that are confirmed to the writer.
        is_fenced: Whether no more adds reach their quorum.
        is_sealed_by_other: Whether another process began to recover it.
        is_broken: Whether the writer failed. No more entries are confirmed to it.
    """

    ledger_id: int
    writer: int
    state: LedgerState = LedgerState.OPEN
    stored: list[Entry] = field(default_factory=list)
    quorum: int = 0
    confirmed: int = 0
    last_entry_id: int = NO_ENTRY
    is_fenced: bool = False
    is_sealed_by_other: bool = False
    is_broken: bool = False
    is_deleted: bool = False
    recovered: int | None = None
    quiet_until: int = 0

    @property
    def readable(self) -> int:
        """Number of entries that a reader may read: to the LAC, or to the end if closed."""
        return self.last_entry_id + 1 if self.state is LedgerState.CLOSED else self.confirmed

    @property
    def entries(self) -> list[Entry]:
        """All entries of a closed ledger."""
        assert self.state is LedgerState.CLOSED
        return self.stored[: self.last_entry_id + 1]

    def end(self) -> LedgerEnd:
        """The first and the last entry of the closed ledger, as a reader finds them."""
        entries = self.entries
        if not entries:
            return LedgerEnd()
        return LedgerEnd(
            last_entry_id=self.last_entry_id,
            size_bytes=100 * len(entries),
            first_offset=entries[0].first_offset,
            end_offset=entries[-1].end_offset,
            append_time_ms=entries[-1].append_time_ms,
        )


class SimLedgers:
    """All ledgers of one world.

    Args:
        later: Calls a function after a number of ms.
        now_ms: Returns the virtual time.
        on_confirmed: Called with (ledger, last entry) when the writer gets a confirmation.
        on_broken: Called once with (ledger, whether it is lost) when the writer fails.
        on_moved: Called when more of a ledger is readable, or when it ended.
    """

    def __init__(
        self,
        random: Random,
        later: Callable[[int, Callable[[], None]], None],
        now_ms: Callable[[], int],
        on_confirmed: Callable[[SimLedger, int], None],
        on_broken: Callable[[SimLedger, bool], None],
        on_moved: Callable[[SimLedger], None] = lambda _: None,
    ) -> None:
        self.by_id: dict[int, SimLedger] = {}
        self.random = random
        self.later = later
        self.now_ms = now_ms
        self.on_confirmed = on_confirmed
        self.on_broken = on_broken
        self.on_moved = on_moved
        self.faulty = True
        self.faults = 0
        self.break_probability = 0.02
        self.trouble = 1.0
        """Factor of the probability that a ledger cannot be created or closed."""
        self.still_until = 0
        """Time before which requests to bookies make no progress."""
        self.out_until = 0
        """Time before which all requests to bookies fail."""

    @property
    def is_out(self) -> bool:
        """Whether all requests to bookies fail now."""
        return self.out_until > self.now_ms()

    def stands_still_ms(self) -> int:
        """Time for which no bookie will answer."""
        return max(0, self.still_until - self.now_ms())

    def create(self, writer: int, ledger_id: int | None = None) -> SimLedger:
        # Ids do not rise: positions are compared by place in the list, never by id.
        if ledger_id is None:
            ledger_id = (len(self.by_id) * 7_919 + 4_999) % 10_007
        ledger = self.by_id[ledger_id] = SimLedger(ledger_id, writer)
        return ledger

    def fails(self, probability: float) -> bool:
        failed = self.faulty and self.random.random() < probability
        self.faults += failed
        return failed

    # --- the writer ---

    def add(self, ledger: SimLedger, entry: Entry) -> None:
        if ledger.is_broken:
            return
        ledger.stored.append(entry)
        if self.fails(self.break_probability):
            self.later(self.random.randint(1, 20), lambda: self._break(ledger, is_lost=False))
        if self.fails(0.03):
            # An ensemble change: entries in flight are stored on some bookies, but not confirmed.
            ledger.quiet_until = self.now_ms() + self.random.randint(20, 250)
        at = max(self.now_ms() + self.random.randint(1, 15), ledger.quiet_until, self.still_until)
        ledger.quiet_until = at
        self.later(at - self.now_ms(), lambda: self._reach_quorum(ledger))

    def _reach_quorum(self, ledger: SimLedger) -> None:
        if ledger.is_fenced or ledger.state is LedgerState.CLOSED:
            self.later(1, lambda: self._break(ledger, is_lost=ledger.is_sealed_by_other))
            return
        ledger.quorum += 1
        last = ledger.quorum
        self.later(self.random.randint(0, 8), lambda: self._confirm(ledger, last))

    def _confirm(self, ledger: SimLedger, count: int) -> None:
        if ledger.is_broken or count <= ledger.confirmed:
            return
        ledger.confirmed = count
        self.on_confirmed(ledger, count - 1)
        self.on_moved(ledger)

    def _break(self, ledger: SimLedger, *, is_lost: bool) -> None:
        if ledger.is_broken or (ledger.state is LedgerState.CLOSED and not is_lost):
            return
        ledger.is_broken = True
        self.on_broken(ledger, is_lost)

    def fail_writer(self, ledger: SimLedger) -> None:
        """Let the writer fail before its first entry."""
        self.faults += 1
        self._break(ledger, is_lost=False)

    def close(self, ledger: SimLedger, then: Callable[[bool | None], None]) -> None:
        """Close the ledger at the writer's LAC. `then` gets the success, or None if unknown."""
        longest = 400 if self.fails(0.1) else 15

        def answer() -> None:
            closed = self._close(ledger)
            self.later(self.random.randint(1, 15), lambda: then(closed))

        self.later(self.stands_still_ms() + self.random.randint(1, longest), answer)

    def _close(self, ledger: SimLedger) -> bool | None:
        if self.is_out:
            return None
        unknown = self.fails(0.08 * self.trouble)
        if unknown and self.random.random() < 0.5:
            return None
        if ledger.state is LedgerState.OPEN and not ledger.is_deleted:
            ledger.state = LedgerState.CLOSED
            ledger.last_entry_id = ledger.confirmed - 1
            ledger.is_broken = True
            self.on_moved(ledger)
        closed = ledger.state is LedgerState.CLOSED and ledger.last_entry_id == ledger.confirmed - 1
        return None if unknown else closed and not ledger.is_deleted

    def die(self, writer: int) -> None:
        """Let the process of a leader die. Its sent adds stay in flight."""

    # --- everybody else ---

    def seal(self, ledger: SimLedger, then: Callable[[SimLedger | None], None]) -> None:
        """Mark, fence and close a ledger, with delays. `then` gets None if a step failed."""
        at = self.stands_still_ms()
        for step in (self.mark, self.fence, self.finish):
            if self.fails(0.02) or self.is_out:
                self.later(at + 1, lambda: then(None))
                return
            at += self.random.randint(1, 25)
            self.later(at, lambda step=step: step(ledger))  # type: ignore[misc]
        self.later(at + 1, lambda: then(ledger))

    def mark(self, ledger: SimLedger) -> None:
        """Do the first step of a recovery: set the state IN_RECOVERY."""
        if ledger.state is LedgerState.OPEN:
            ledger.state = LedgerState.IN_RECOVERY
            ledger.is_sealed_by_other = True

    def fence(self, ledger: SimLedger) -> None:
        """Do the second step: end all adds. The entries that are found then are final."""
        if ledger.state is LedgerState.IN_RECOVERY and not ledger.is_fenced:
            ledger.is_fenced = True
            on_their_way = len(ledger.stored) - ledger.quorum
            ledger.recovered = ledger.quorum + self.random.randint(0, on_their_way)

    def finish(self, ledger: SimLedger) -> None:
        """Do the last step: close the ledger, unless it is already closed."""
        if ledger.state is LedgerState.IN_RECOVERY:
            assert ledger.recovered is not None
            ledger.state = LedgerState.CLOSED
            ledger.last_entry_id = ledger.recovered - 1
            self.on_moved(ledger)

    def drop(self, ledger_id: int) -> None:
        """Seal and delete a ledger."""
        ledger = self.by_id[ledger_id]
        self.mark(ledger)
        self.fence(ledger)
        self.finish(ledger)
        ledger.is_deleted = True
        self.on_moved(ledger)
