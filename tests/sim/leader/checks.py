"""The invariants of a leader log, checked after every change of its head (LOGS.md#M1-M9)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.read.versions import listing_of
from ledgerlog_spark.protocol.log.state.codec import decode_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledgerlog_spark.protocol.log.state.records import Item
    from tests.sim.leader.leader import Append
    from tests.sim.leader.ledgers import Entry
    from tests.sim.log.store import State


class LeaderChecks:
    """The checks of one log, with the facts that they need.

    Attributes:
        log: By first offset, every entry that was listed in a closed ledger or seen by a reader.
        listed_ever: All ledgers that were ever on the list.
    """

    def __init__(self, world: Any) -> None:
        """Check the log of `world`, which has `ledgers` and `require`."""
        self.world = world
        self.log: dict[int, Entry] = {}
        self.listed_ever: set[int] = set()

    def failed_for_certain(self, tokens: set[str]) -> None:
        """Check that a failed change of the head, with these tokens, left nothing."""
        there = {state.head.value.token for state in self.world.store.states} & tokens
        self.world.require(not there, f"{there} were said to have failed, and are in the log")

    @property
    def ledgers(self) -> Any:
        """All ledgers of the world."""
        return self.world.ledgers

    def require(self, holds: bool, what: str) -> None:
        self.world.require(holds, what)

    def note(self, entry: Entry) -> None:
        """Check that all readers see the same entry at an offset (LOGS.md#M7)."""
        known = self.log.setdefault(entry.first_offset, entry)
        self.require(known == entry, f"{known} and {entry} are at one offset")

    def items(self, state: State) -> tuple[Item, ...]:
        walk = listing_of(state.head.value)
        while walk.wanted:
            walk.feed(
                [
                    decode_page(page.kind, state.pages[page.ref.token][1][page.ref.number])
                    for page in walk.wanted
                ]
            )
        return walk.records()

    def listed_now(self, state: State) -> set[int]:
        opened = {ledger.ledger_id for ledger in state.head.value.open_ledgers}
        return opened | {item.ledger_id for item in self.items(state)}

    def change(self, request: Any, old: State, new: State) -> None:
        if not isinstance(request, m.WriteHead):
            return
        before, after = old.head.value, new.head.value
        opened_before = [ledger.ledger_id for ledger in before.open_ledgers]
        opened = [ledger.ledger_id for ledger in after.open_ledgers]
        self.require(after.start_offset >= before.start_offset, "the start moved back")
        self.require(after.start_offset <= after.end_offset, "the start is behind the end")
        self.check_open(opened_before, opened)
        left = [i for i in opened_before if i not in opened]
        self.require(
            opened_before[: len(left)] == left, f"{left} left from the middle (LOGS.md#M1)"
        )
        self.check_left(left, old, new, request)
        self.check_items(new)
        for item in self.items(new):
            self.require(
                not self.ledgers.by_id[item.ledger_id].is_deleted,
                f"listed ledger {item.ledger_id} was deleted",
            )

    def check_open(self, opened_before: list[int], opened: list[int]) -> None:
        self.require(len(opened) <= 2, f"{opened} are open at once (LOGS.md#M4)")
        added = [i for i in opened if i not in opened_before]
        for ledger_id in added:
            ledger = self.ledgers.by_id[ledger_id]
            self.require(
                ledger_id not in self.listed_ever, f"{ledger_id} is listed again (LOGS.md#M1)"
            )
            self.require(not ledger.is_deleted, f"deleted ledger {ledger_id} is listed")
            self.require(not ledger.stored, f"ledger {ledger_id} was used before it was listed")
            self.listed_ever.add(ledger_id)
        self.require(len(added) <= 1, f"{added} are added at once (LOGS.md#M1)")
        self.require(opened[len(opened) - len(added) :] == added, f"{opened}: order (LOGS.md#M1)")

    def check_left(self, left: list[int], old: State, new: State, request: m.WriteHead) -> None:
        """Check that a ledger that was open is closed and listed (LOGS.md#M2, LOGS.md#M5)."""
        offset = old.head.value.end_offset
        items = {item.ledger_id: item for item in self.items(new)}
        for ledger_id in left:
            ledger = self.ledgers.by_id[ledger_id]
            self.require(
                ledger.state is LedgerState.CLOSED, f"{ledger_id} is not closed (LOGS.md#M5)"
            )
            end = ledger.end()
            if end.is_empty:
                self.require(ledger_id in request.unlisted, f"empty ledger {ledger_id} has no mark")
                continue
            item = items.get(ledger_id)
            self.require(item is not None, f"ledger {ledger_id} left the list (LOGS.md#M2)")
            assert item is not None
            self.require(
                item.last_entry_id == end.last_entry_id, f"{item} is not {end} (LOGS.md#M2)"
            )
            self.require(
                item.first_offset == end.first_offset == offset, f"{item}: gap (LOGS.md#M3)"
            )
            self.require(item.end_offset == end.end_offset, f"{item} is not {end} (LOGS.md#M3)")
            offset = end.end_offset
            for entry in ledger.entries:
                self.note(entry)
        self.require(
            new.head.value.end_offset == offset, "the end is not that of the list (LOGS.md#M3)"
        )

    def check_items(self, state: State) -> None:
        head = state.head.value
        items = self.items(state)
        for first, second in itertools.pairwise(items):
            self.require(
                first.end_offset == second.first_offset, f"{first} {second}: gap (LOGS.md#M3)"
            )
        if head.open_ledgers:
            first_offset = head.open_ledgers[0].first_offset
            self.require(first_offset == head.end_offset, "open ledgers do not follow (LOGS.md#M3)")

    # --- the end ---

    def whole(self, state: State) -> dict[Any, Entry]:
        """Check and return the final log: no gaps, no append twice, appends in real-time order."""
        head = state.head.value
        self.require(not head.open_ledgers, "the last leader left ledgers open")
        offset = self.items(state)[0].first_offset if self.items(state) else head.end_offset
        found: dict[Any, Entry] = {}
        for item in self.items(state):
            for entry in self.ledgers.by_id[item.ledger_id].entries:
                self.require(entry.first_offset == offset, f"a gap before {entry} (LOGS.md#M7)")
                self.require(entry.name not in found, f"{entry} is in the log twice (LOGS.md#M7)")
                found[entry.name] = entry
                self.note(entry)
                offset = entry.end_offset
        self.require(offset == head.end_offset, f"the log ends at {offset}, not {head.end_offset}")
        self.names()
        return found

    def names(self) -> None:
        """Check that no append was ever at two offsets, even if it is truncated (LOGS.md#M7)."""
        names = [entry.name for entry in self.log.values()]
        self.require(len(names) == len(set(names)), "an append was in the log twice (LOGS.md#M7)")
        times = [self.log[offset].append_time_ms for offset in sorted(self.log)]
        self.require(times == sorted(times), "append times fall")

    def order(self, appends: Iterable[Append]) -> None:
        """Check that an append that ended before another began is before it (LOGS.md#M8)."""
        done = [append for append in appends if append.acknowledged_ms is not None]
        first_end = None
        for append in sorted(done, key=lambda append: -append.offset):
            ended_ms = append.acknowledged_ms
            assert ended_ms is not None
            if first_end is not None:
                self.require(
                    first_end >= append.started_ms,
                    f"{append} lies before an earlier one (LOGS.md#M8)",
                )
            first_end = ended_ms if first_end is None else min(first_end, ended_ms)
