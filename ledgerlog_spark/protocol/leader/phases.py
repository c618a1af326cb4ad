"""Phases of a leader, and the kinds of events that it takes (LOGS.md#leader-logs)."""

from __future__ import annotations

from enum import Enum

from ledgerlog_spark.protocol.leader.messages import (
    AppendRequested,
    CloseAnswered,
    EntriesConfirmed,
    GiveUp,
    HeadChanged,
    LedgerBroken,
    LedgerCreated,
    LedgerSealed,
    RollRequested,
)
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, TimerFired
from ledgerlog_spark.protocol.log.messages import HeadRead, PagesRead, PagesWritten, Synced, Written


class LeaderPhase(Enum):
    """Where a leader is."""

    NEW = "new"
    OPENING = "opening"
    LEADING = "leading"
    CLOSING = "closing"
    CLOSED = "closed"
    STOPPED = "stopped"


ListReply = Synced | HeadRead | PagesRead | PagesWritten | Written
LIST_REPLIES: tuple[type[ListReply], ...] = (Synced, HeadRead, PagesRead, PagesWritten, Written)
"""Answers to what reads and changes the list."""

OpeningReply = ListReply | LedgerSealed | LedgerCreated
OPENING_REPLIES: tuple[type[OpeningReply], ...] = (*LIST_REPLIES, LedgerSealed, LedgerCreated)
"""Answers to what an opening asks for."""

ASKED = (AppendRequested, RollRequested, CloseRequested)
"""What the application asks for."""

TOO_LATE = (
    LedgerSealed, CloseAnswered, TimerFired, EntriesConfirmed, LedgerBroken, HeadChanged, GiveUp,
)  # fmt: skip
"""What changes nothing once a leader has ended."""
