"""What an answer about a whole ledger waits for: the one place that says so.

Adds and control records are answered with the group that their own record was synced in (`on_done`
of a `JournalRecord`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.ledger_state import LedgerState


@dataclass(frozen=True, slots=True)
class Durability:
    """Tickets of records that have to be synced before an answer goes out."""

    def fence_waits_for(self, state: LedgerState) -> int:
        """Ticket after which a fence is answered.

        A fence is a barrier: every add of the ledger accepted before it is durable as well, so
        the answer includes them all (PROTOCOL.md#F2).
        """
        return state.last_ticket

    def recovery_read_waits_for(self, state: LedgerState) -> int:
        """Ticket after which a recovery read is answered: all it could say is durable then."""
        return state.last_ticket
