"""Phases of a commit."""

from __future__ import annotations

from enum import Enum


class CommitPhase(Enum):
    """What the one request that is out is for."""

    IDLE = "idle"
    SYNC = "sync"
    HEAD = "head"
    REBASE = "rebase"
    PRODUCER = "producer"
    REGISTERED = "registered"
    PASSWORD = "password"  # noqa: S105 (a name)
    LISTING = "listing"
    SCHEMA = "schema"
    MERGE = "merge"
    PAGES = "pages"
    COMMIT = "commit"
    ENDED = "ended"
