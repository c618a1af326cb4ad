"""Decides which ledgers a bookie may release (ADR 43).

To release a ledger means to give back the space of its entries without a fence, because the
metadata of the closed ledger no longer names this bookie.
"""

from __future__ import annotations

from collections import deque

from bookie_server.core.ledger_gate import Health, may_say_absent
from bookie_server.core.ledger_state import HeldLedger
from ledgerlog_spark.model import LedgerMetadata, LedgerState

PERIODS_PER_WAIT = 32


class AddPeriods:
    """Divides the time since the start into periods, so that an add need not read the clock.

    For each ledger, only the number of the period of its last add is stored. Period 0 begins at the
    start.
    """

    def __init__(self, wait_ms: int, now_ms: int) -> None:
        self._wait_ms = wait_ms
        # times at which the newest periods began; the last time is for the current period
        self._begun_ms = deque([now_ms])
        self.current = 0

    def advance(self, now_ms: int) -> None:
        """Begin the next period, unless the current period began recently."""
        if now_ms - self._begun_ms[-1] < max(1, self._wait_ms // PERIODS_PER_WAIT):
            return
        self._begun_ms.append(now_ms)
        self.current += 1
        while len(self._begun_ms) > 1 and now_ms - self._begun_ms[1] >= self._wait_ms:
            self._begun_ms.popleft()

    def quiet_before(self, now_ms: int) -> int:
        """Return the number of the newest period that began at least `wait_ms` ago.

        A ledger whose last add was in an earlier period has got no add for at least this time.
        """
        young = sum(now_ms - begun_ms < self._wait_ms for begun_ms in self._begun_ms)
        return max(0, self.current - young)


def may_begin(state: HeldLedger, health: Health, *, quiet_before: int, durable_ticket: int) -> bool:
    """Return whether the bookie may begin to release a ledger, if the metadata allows it.

    The bookie must hold entries of the ledger, and all these entries must be durable. The bookie
    must also be allowed to deny that other entries of the ledger exist.
    """
    return (
        state.last_accepted_id >= 0
        and state.added_in < quiet_before
        and state.last_ticket <= durable_ticket
        and may_say_absent(state, health)
    )


def is_released_by(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Return whether the metadata of a ledger allows this bookie to release the ledger.

    In state IN_RECOVERY, a recovery may have written entries to bookies that no fragment names yet.
    """
    is_named = any(bookie_id in fragment.ensemble for fragment in metadata.fragments)
    return metadata.state is LedgerState.CLOSED and not is_named
