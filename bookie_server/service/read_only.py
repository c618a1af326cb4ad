"""Combines the reasons for which a bookie refuses regular adds."""

from __future__ import annotations

from enum import Enum

from bookie_server.storage.directories.opening import BookieStorage


class ReadOnlyReason(Enum):
    """A reason that does not come from the storage.

    The storage also has reasons of its own, such as a full device.
    """

    ADMINISTRATOR = "administrator"
    VACATION = "vacation"


class ReadOnlySwitch:
    """Makes a storage read-only while there is at least one reason."""

    def __init__(self, storage: BookieStorage) -> None:
        self._storage = storage
        self._reasons: set[ReadOnlyReason] = set()

    def set(self, reason: ReadOnlyReason, *, is_read_only: bool) -> None:
        """Add the reason if `is_read_only` is true, otherwise remove it."""
        if is_read_only:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        self._storage.set_read_only(is_read_only=bool(self._reasons))
