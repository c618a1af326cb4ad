"""Decides whether the bookie may deny that an entry exists.

A ledger in limbo may have lost records, so the bookie answers "unknown". But if the record of the
ledger in the metadata store is newer than the loss, the ledger has lost nothing. So if the doubt
has a transaction, the bookie reads the record of a ledger before it first answers "unknown" for the
ledger.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import Denial, Doubt
from bookie_server.core.ledger_gate import absent, is_in_limbo, may_say_absent
from bookie_server.storage.limbo.record_checks import check_in_time
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import call_back
from ledgerlog_spark.model import Code

ASKED_MAX = 1_000
"""Maximum number of ledgers that are listed for the repair because they got the answer
"unknown"."""
COMPARED_MAX = 10_000
"""Maximum number of ledgers for which the comparison with the loss is remembered. For other
ledgers, the record is read again."""
QUESTIONS_MAX = 64
"""Maximum number of ledgers whose records are read at the same time. Reads of further ledgers get
the answer "unknown"."""


class Denials:
    """Chooses the answers to requests for entries, LACs and lists that the bookie does not have."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._health = shared.health
        self._states = shared.states
        self._compared: OrderedDict[int, int] = OrderedDict()  # ledger id to epoch of comparison
        self._questions: dict[int, list[Callable[[], None]]] = {}
        self._asked: dict[int, None] = {}

    def may_deny(self, ledger_id: int) -> bool:
        """Return whether the bookie may now deny that an entry of the ledger exists."""
        newer = self._shared.newer.get(ledger_id, 0)
        return may_say_absent(self._states.get(ledger_id), self._health, newer)

    def must_compare(self, ledger_id: int) -> bool:
        """Return whether the record of the ledger may show that the ledger lost nothing."""
        health, state = self._health, self._states.get(ledger_id)
        if health.has_failed or not self._is_in_limbo(ledger_id):
            return False
        cleared = None if state is None else state.cleared_epoch
        compared = self._compared.get(ledger_id, 0)
        return rules.denial(cleared, health.doubt, compared) is Denial.COMPARE

    def code(self, ledger_id: int, *, was_certain: bool = True) -> Code:
        """Return the code of the answer after a search that found no entry.

        If a comparison with the loss is necessary, it must end before this call.
        `was_certain` is the value of `may_deny` before the search. During the search, a repair or a
        rebuild of an index may have ended. So the bookie denies that an entry exists only if
        `may_deny` was true before the search and is true after it.
        """
        state, newer = self._states.get(ledger_id), self._shared.newer.get(ledger_id, 0)
        if self._is_in_limbo(ledger_id):
            self._note_asked(ledger_id)
        return absent(state, self._health, newer) if was_certain else Code.IO_ERROR

    def deny(
        self,
        ledger_id: int,
        then: Callable[[Code], None],
        again: Callable[[], None] | None,
        *,
        was_certain: bool = True,
    ) -> None:
        """Decide on the answer after a search that found no entry.

        If the record of the ledger must first be compared with the loss, call `again` after the
        comparison, because the ledger may have got the entry meanwhile. Otherwise call `then` with
        the code. If the comparison was already made, `again` is None.
        """
        if again is not None and self.must_compare(ledger_id):
            self.compare(ledger_id, again)
        else:
            then(self.code(ledger_id, was_certain=was_certain))

    def compare(self, ledger_id: int, then: Callable[[], None]) -> None:
        """Compare the record of a ledger with the loss, then call `then`, even after a failure."""
        waiting = self._questions.get(ledger_id)
        if waiting is not None:
            waiting.append(then)
        elif len(self._questions) >= QUESTIONS_MAX:
            then()
        else:
            self._questions[ledger_id] = [then]
            self._shared.tasks.spawn("comparison with a loss", self._compare(ledger_id))

    async def _compare(self, ledger_id: int) -> None:
        before = self._health.doubt
        checked = await check_in_time(self._shared, ledger_id)
        if checked.created:
            self._compared[ledger_id] = max(self._compared.pop(ledger_id, 0), before.epoch)
            if len(self._compared) > COMPARED_MAX:
                self._compared.popitem(last=False)
            self.take_creation(ledger_id, checked.created, before)
        for then in self._questions.pop(ledger_id):
            call_back(self._shared.tasks, then)

    def take_creation(self, ledger_id: int, created: int, before: Doubt) -> None:
        """Clear a ledger if the transaction `created` of its record is newer than the loss.

        `before` is the doubt at the time when the bookie requested the record.
        """
        epoch = rules.cleared_by_creation(created, before)
        if not epoch:
            return
        state, newer = self._states.get(ledger_id), self._shared.newer
        if state is None:
            newer[ledger_id] = max(newer.pop(ledger_id, 0), epoch)
            if len(newer) > COMPARED_MAX:
                # The oldest ledger in `newer` returns to limbo. Before the bookie denies an entry
                # of this ledger again, it reads the record of the ledger.
                ledger_id, _ = newer.popitem(last=False)
                self._compared.pop(ledger_id, None)
        elif epoch > state.cleared_epoch:
            state.cleared_epoch = epoch
            self._states.changed.add(ledger_id)

    def take_asked(self) -> list[int]:
        """Return the ledgers that got the answer "unknown" since the last call, oldest first."""
        asked, self._asked = list(self._asked), {}
        return asked

    def _note_asked(self, ledger_id: int) -> None:
        if len(self._asked) < ASKED_MAX:
            self._asked[ledger_id] = None

    def _is_in_limbo(self, ledger_id: int) -> bool:
        newer = self._shared.newer.get(ledger_id, 0)
        return is_in_limbo(self._states.get(ledger_id), self._health.doubt, newer)
