"""The ledgers of one leader: the current ledger, the next ledger, and the ledgers to close.

LOGS.md#J5-J9. At most two ledgers of the list are open. When a leader rolls, it creates the next
ledger, and lists this ledger while appends still go to the current ledger. The leader switches to
the next ledger after all appends of the current ledger are acknowledged. Then the old ledger is
closed and becomes an item, before another roll can begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.leader.appends import LeaderAppends, LeaderLedger
from ledgerlog_spark.protocol.leader.list import Closed
from ledgerlog_spark.protocol.leader.messages import LedgerEnd
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import OPEN_LEDGERS_MAX
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

Change = tuple[Closed, LeaderLedger | None]
"""A change of the list: the ledgers that become items, and the ledger that is added (if any)."""


class RollStep(Enum):
    """The steps of a roll."""

    CLOSING = "closing the earlier ledger"
    CREATING = "creating the next ledger"
    LISTING = "reading or changing the list"
    DRAINING = "acknowledging the pending appends"


class AgeTimer:
    """The timer for a roll by age. It also causes a roll if the log gets no further appends."""

    __slots__ = ("_aging", "_numbers", "request")

    def __init__(self, numbers: RequestNumbers) -> None:
        self.request = 0  # 0 while the timer does not run
        self._numbers = numbers
        self._aging: LeaderLedger | None = None  # the ledger for which the timer was started

    def arm(self, ledger: LeaderLedger, roll_ms: int) -> list[StartTimer]:
        """Start the timer for this ledger, unless the timer runs."""
        if self.request:
            return []
        self.request, self._aging = self._numbers.next(), ledger
        return [StartTimer(self.request, roll_ms)]

    def end(self, ledger: LeaderLedger) -> bool:
        """Note that the timer has ended. Return whether it was started for this ledger."""
        self.request = 0
        return self._aging is ledger


class LeaderLedgers:
    """The open ledgers of a leader. Only the ledgers in `listed` may have acknowledged records."""

    __slots__ = ("current", "listed", "next", "wants_roll")

    def __init__(self, first: LeaderLedger) -> None:
        self.current = first  # appends go to this ledger
        # the ledger that will replace `current`; gets appends only after it is listed
        self.next: LeaderLedger | None = None
        # the open ledgers of the list, as this leader last read or wrote it, oldest first
        self.listed = [first]
        # `current` is large or old enough for a roll, or the application requested a roll
        self.wants_roll = False

    @property
    def is_next_listed(self) -> bool:
        """Whether the list names the next ledger."""
        return self.next in self.listed

    @property
    def takes_entries(self) -> bool:
        """Whether appends may be assigned to the current ledger.

        After the next ledger is listed, further appends wait. All appends to the current ledger
        have to be acknowledged before the leader appends to the next ledger (LOGS.md#J7).
        """
        return not self.current.is_broken and not self.is_next_listed

    @property
    def is_listed_alone(self) -> bool:
        """Whether the current ledger is the only open ledger of the list (LOGS.md#J5)."""
        return self.listed == [self.current]

    @property
    def all(self) -> list[LeaderLedger]:
        """The ledgers of this leader that are not items yet."""
        known = (*self.listed, self.current, self.next)
        return [ledger for ledger in dict.fromkeys(known) if ledger is not None]

    @property
    def contested(self) -> list[LeaderLedger]:
        """The listed ledgers that another client fenced, if this leader may not recover them yet.

        While there are such ledgers, the leader creates no ledger and lists no ledger.
        """
        return [ledger for ledger in self.listed if ledger.is_contested]

    def find(self, ledger_id: int) -> LeaderLedger | None:
        """Return the open ledger with this id; None if there is no such ledger."""
        return next((ledger for ledger in self.all if ledger.ledger_id == ledger_id), None)

    def look_at_size_and_age(self, properties: LogProperties, now_ms: int) -> None:
        """Request a roll when the current ledger is large or old enough."""
        current = self.current
        if not current.entries:
            return
        is_large = current.size_bytes >= properties.roll_bytes
        is_old = now_ms - current.opened_ms >= properties.roll_ms
        self.wants_roll = self.wants_roll or is_large or is_old

    def may_create(self) -> bool:
        """Whether the next ledger should be created (LOGS.md#J5)."""
        is_due = self.wants_roll or self.current.is_broken
        return is_due and self.next is None and self.is_listed_alone

    def roll_wait(
        self, errors: Sequence[LedgerLogError | None], *, is_closing: bool
    ) -> tuple[RollStep, LedgerLogError | None]:
        """Return the step that a roll waits for, and the error of the newest attempt at this step.

        `errors` contains the errors of the newest attempts at closing, creating and listing. If the
        roll waits for several steps, a failed step has priority.
        """
        due = {
            RollStep.CLOSING: self.to_close(is_closing=is_closing) is not None,
            RollStep.CREATING: self.may_create(),
            RollStep.LISTING: self.next is not None and not self.is_next_listed,
            RollStep.DRAINING: self.is_next_listed and not self.current.is_broken,
        }
        newest = zip(RollStep, (*errors, None), strict=True)
        waits = [(step, error) for step, error in newest if due[step]]
        waits = waits or [(RollStep.LISTING, errors[-1])]
        return next((wait for wait in waits if wait[1] is not None), waits[0])

    def may_switch(self, appends: LeaderAppends) -> bool:
        """Whether the leader may switch to the next ledger.

        The switch is allowed when no append is pending in the current ledger (LOGS.md#J7), or when
        the current ledger is broken and was closed without its pending appends (LOGS.md#J8).
        """
        if not self.is_next_listed:
            return False
        if self.current.is_broken:
            return self.current.end is not None
        return not appends.has_ordered

    def switch(self, now_ms: int) -> None:
        """Make the next ledger the current ledger."""
        assert self.next is not None
        self.current, self.next = self.next, None
        self.current.opened_ms = now_ms
        self.wants_roll = False

    def to_close(self, *, is_closing: bool) -> LeaderLedger | None:
        """Return the oldest listed ledger that is not closed and gets no more entries."""
        for ledger in self.listed:
            is_left = ledger not in (self.current, self.next)
            if (is_left or ledger.is_broken or is_closing) and ledger.end is None:
                return ledger
        return None

    def closed(self, *, is_closing: bool) -> Closed:
        """Return the oldest listed ledgers that can become items now, with their contents.

        At least one ledger stays open, unless the same change lists the next ledger or the leader
        is closing. If the list had no open ledger of this leader, this leader could not detect that
        another leader took over and closed the log (LOGS.md#J3).
        """
        done: dict[int, LedgerEnd] = {}
        for ledger in self.listed:
            if ledger.end is None:
                break
            done[ledger.ledger_id] = ledger.end
        if len(done) == len(self.listed) and not is_closing and not self.to_add(done):
            done.popitem()
        return done

    def to_add(self, closed: Closed) -> LeaderLedger | None:
        """Return the next ledger if it may be listed now, otherwise None.

        The change that lists it also makes items of the ledgers in `closed`.
        """
        if self.next is None or self.is_next_listed:
            return None
        has_room = len(self.listed) - len(closed) < OPEN_LEDGERS_MAX
        return self.next if has_room else None

    def change_due(self, *, is_closing: bool) -> Change | None:
        """Return the change of the list that is due now; None if no change is due."""
        closed = self.closed(is_closing=is_closing)
        added = self.to_add(closed)
        return (closed, added) if closed or added is not None else None

    def relist(self, closed: Closed, added: LeaderLedger | None) -> None:
        """Note that this change of the list was made."""
        del self.listed[: len(closed)]
        if added is not None:
            self.listed.append(added)
