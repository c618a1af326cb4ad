"""Reads the last add confirmed of a ledger from its last ensemble, without fencing.

The result is the largest LAC that a bookie reports. This LAC is never larger than the LAC of the
writer. The result may be smaller, because the writer puts its LAC into a header when it builds the
run of entries (PROTOCOL.md#A3). If no bookie can report a LAC but a bookie is busy, the machine
repeats all requests later, for about 10 s in total.
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from enum import Enum

from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata
from ledgerlog_spark.protocol.dispatch import Table, TableMachine, on, row
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.quorum import is_covered
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy

OVERLOAD = RetryPolicy(first_delay_ms=50, delay_max_ms=1_000, attempts_max=16)


class LacPhase(Enum):
    """State of a LAC read."""

    NEW = "new"
    READING = "reading"
    DONE = "done"


class LacReader(TableMachine[m.Event, m.Effect]):
    """Reads the LAC once. The last indication is `LacRead` or `LedgerFailed`.

    `LedgerFailed` means that no bookie reported a LAC or the absence of entries.
    """

    def __init__(
        self,
        *,
        metadata: LedgerMetadata,
        known: int = NO_ENTRY,  # the largest LAC that the caller has read
        waits_for_all: bool = False,
    ) -> None:
        self.phase = LacPhase.NEW
        self.last_add_confirmed = known  # the largest LAC so far; never falls
        self._metadata = metadata
        self._waits_for_all = waits_for_all
        self._numbers = RequestNumbers()
        self._sent: dict[int, int] = {}
        self._codes: dict[str, Code] = {}
        self._known_mask = 0
        self._is_busy = False
        self._rounds = 0
        self._pause = 0

    def _on_start(self, _event: m.Start) -> list[m.Effect]:
        if self._metadata.is_closed:
            self.last_add_confirmed = max(self.last_add_confirmed, self._metadata.last_entry_id)
            return self._finish(is_covered_now=True)
        self.phase = LacPhase.READING
        return self._request_all()

    def _request_all(self) -> list[m.Effect]:
        self._is_busy = False
        self._codes = {}
        effects: list[m.Effect] = []
        for index, bookie_id in enumerate(self._metadata.last_fragment.ensemble):
            number = self._numbers.next()
            self._sent[number] = index
            effects.append(m.SendReadLac(number, bookie_id, index))
        return effects

    def _on_replied(self, event: m.LacReplied) -> list[m.Effect]:
        index = self._sent.pop(event.request)
        effects: list[m.Effect] = []
        self._is_busy = self._is_busy or event.code is Code.BUSY
        self._codes[self._metadata.last_fragment.ensemble[index]] = event.code
        if event.code is Code.OK or event.code.is_absent:
            self._known_mask |= 1 << index
        if event.code is Code.OK and event.last_add_confirmed > self.last_add_confirmed:
            self.last_add_confirmed = event.last_add_confirmed
            if self._waits_for_all:
                effects.append(m.LacAdvanced(self.last_add_confirmed))
        covered = is_covered(self._metadata.quorum, self._known_mask)
        if not self._sent or (covered and not self._waits_for_all):
            effects += self._finish(is_covered_now=covered)
        return effects

    def _on_timer_fired(self, event: m.TimerFired) -> list[m.Effect]:
        assert event.request == self._pause
        return self._request_all()

    def _finish(self, *, is_covered_now: bool) -> list[m.Effect]:
        if self._known_mask == 0 and self._is_busy:
            self._rounds += 1
            delay_ms = OVERLOAD.delay_ms(self._rounds)
            if delay_ms is not None:
                self._pause = self._numbers.next()
                return [m.StartTimer(self._pause, delay_ms)]
        self.phase = LacPhase.DONE
        if self._known_mask == 0 and not self._metadata.is_closed:
            return [
                m.LedgerFailed(
                    m.Failure.LAC_UNKNOWN,
                    is_definite=True,
                    last_add_confirmed=self.last_add_confirmed,
                    is_retriable=True,
                    bookie_ids=self._metadata.last_fragment.ensemble,
                    codes=tuple(self._codes.items()),
                )
            ]
        # A writer adds a fragment only after all entries before the fragment are confirmed. So the
        # LAC is at least the last of these entries.
        floor = self._metadata.last_fragment.first_entry_id - 1
        if not self._metadata.is_closed:
            self.last_add_confirmed = max(self.last_add_confirmed, floor)
        return [m.LacRead(self.last_add_confirmed, is_covered_now)]


LAC_TABLE: Table[LacReader, m.Effect] = {
    LacPhase.NEW: row(on(m.Start, LacReader._on_start)),
    LacPhase.READING: row(
        on(m.LacReplied, LacReader._on_replied), on(m.TimerFired, LacReader._on_timer_fired)
    ),
    LacPhase.DONE: row(ignored=(m.LacReplied, m.TimerFired)),
}
"""The handler of each event in each phase of a LAC read."""
LacReader.table = LAC_TABLE
