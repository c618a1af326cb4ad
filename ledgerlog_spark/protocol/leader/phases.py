"""Phases of a leader, and the kinds of events that it handles (LOGS.md#leader-logs)."""

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
"""Replies to requests that read or change the list."""

OpeningReply = ListReply | LedgerSealed | LedgerCreated
OPENING_REPLIES: tuple[type[OpeningReply], ...] = (*LIST_REPLIES, LedgerSealed, LedgerCreated)
"""Replies to the requests of an opening."""

CALLS = (AppendRequested, RollRequested, CloseRequested)
"""Requests of the application."""

TOO_LATE = (
    LedgerSealed, CloseAnswered, TimerFired, EntriesConfirmed, LedgerBroken, HeadChanged, GiveUp,
)  # fmt: skip
"""Events that change nothing after a leader has ended."""
