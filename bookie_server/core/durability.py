"""What an answer waits for: the one place that says so."""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.ledger_state import LedgerState
from bookie_server.core.record import LogRecord


@dataclass(frozen=True, slots=True)
class Durability:
    """Tickets of records that have to be synced before an answer goes out."""

    def add_waits_for(self, record: LogRecord) -> int:
        """Ticket after which an add is answered: the sync that covers its record."""
        return record.ticket

    def fence_waits_for(self, state: LedgerState) -> int:
        """Ticket after which a fence is answered.

        A fence is a barrier: every add of the ledger accepted before it is durable as well, so
        the answer includes them all (schedule T39).
        """
        return state.last_ticket

    def recovery_read_waits_for(self, state: LedgerState) -> int:
        """Ticket after which a recovery read is answered: all it could say is durable then."""
        return state.last_ticket

    def control_waits_for(self, record: LogRecord) -> int:
        """Ticket after which any other control record is answered: its own sync."""
        return record.ticket
