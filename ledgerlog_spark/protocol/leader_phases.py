"""Phases of a leader, and what each event does in each of them (docs/LOGS.md, Leader logs)."""

from __future__ import annotations

from enum import Enum

from ledgerlog_spark.protocol.dispatch import REFUSED, Table, row
from ledgerlog_spark.protocol.leader_messages import (
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
from ledgerlog_spark.protocol.log_messages import HeadRead, PagesRead, PagesWritten, Synced, Written
from ledgerlog_spark.protocol.messages import CloseRequested, Start, TimerFired


class LeaderPhase(Enum):
    """Where a leader is."""

    NEW = "new"
    OPENING = "opening"
    LEADING = "leading"
    CLOSING = "closing"
    CLOSED = "closed"
    STOPPED = "stopped"


_LIST_REPLIES = (Synced, HeadRead, PagesRead, PagesWritten, Written)
_OPENS: dict[type, str] = {
    **dict.fromkeys((*_LIST_REPLIES, LedgerSealed, LedgerCreated), "_on_list_reply"),
    LedgerBroken: "_on_broken_early",
    TimerFired: "_on_open_timer",
    HeadChanged: "_on_head_changed",
}
_LEADS: dict[type, str] = {
    **dict.fromkeys(_LIST_REPLIES, "_on_list_reply"),
    EntriesConfirmed: "_on_confirmed",
    LedgerBroken: "_on_broken",
    LedgerCreated: "_on_created",
    CloseAnswered: "_on_close_answered",
    TimerFired: "_on_timer",
    HeadChanged: "_on_head_changed",
    GiveUp: "_on_given_up",
}
_ASKED: dict[type, str] = dict.fromkeys((AppendRequested, RollRequested, CloseRequested), REFUSED)
_LATE: dict[type, str] = {
    **_ASKED,
    **dict.fromkeys(_LIST_REPLIES, "_on_late_reply"),
    LedgerCreated: "_on_created_too_late",
}
_TOO_LATE = (
    LedgerSealed, CloseAnswered, TimerFired, EntriesConfirmed, LedgerBroken, HeadChanged, GiveUp,
)  # fmt: skip

LEADER_TABLE: Table = {
    LeaderPhase.NEW: row({Start: "_on_start", **_ASKED}),
    LeaderPhase.OPENING: row({**_ASKED, **_OPENS, GiveUp: "_on_opening_given_up"}),
    LeaderPhase.LEADING: row(
        {
            **_LEADS,
            AppendRequested: "_on_append",
            RollRequested: "_on_roll_requested",
            CloseRequested: "_on_close_requested",
        }
    ),
    LeaderPhase.CLOSING: row({**_ASKED, **_LEADS}),
    LeaderPhase.CLOSED: row(_LATE, ignored=_TOO_LATE),
    LeaderPhase.STOPPED: row(_LATE, ignored=_TOO_LATE),
}
"""Phases x events of a leader."""
