"""Stores in the MANIFEST whether a run may have acknowledged records that are not synced.

This module is for runs that acknowledge a record before the record is synced. If the power fails
while the MANIFEST lists the run with its own mode, the next start begins an epoch of doubt. So
while all acknowledged records are synced, the MANIFEST lists the run as a run in mode `direct`. All
records are synced from the start of the run to its first add, and after a whole interval of
checkpoints without a new record.
"""

from __future__ import annotations

from typing import Protocol

from bookie_server.core.bookie_run import BookieRun
from bookie_server.ports import Future
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve


class Commits(Protocol):
    """The maintenance of the files, which commits the MANIFEST."""

    def wake(self) -> None:
        """Request a commit, and do not wait for it."""

    async def commit_soon(self) -> None:
        """Request a commit that begins after this call, and wait for its end or for a failure."""


class RecordedRun:
    """Decides how the MANIFEST lists a run that acknowledges records before they are synced.

    In each interval of checkpoints, this needs at most two commits.
    """

    def __init__(self, shared: Shared, run: BookieRun, commits: Commits) -> None:
        self._shared = shared
        self._run = run
        self._commits = commits
        self._is_listed = False  # whether the durable and the next MANIFEST list the run
        self._listing: Future[None] | None = None  # ends when the commit with the run has ended
        self.groups = 0  # number of groups that are being written, set by their writer

    def note_idle(self) -> None:
        """Stop listing the run, because all written groups were synced some time ago."""
        if not self.groups and self._shared.run == self._run:
            # From now on, the next commit writes a MANIFEST without the run, whatever causes it.
            self._is_listed = False
            self._shared.run = self._run.while_synced()
            self._commits.wake()

    async def may_sync_later(self, *, has_adds: bool) -> bool:
        """Return whether a group may be written without a sync. Calls end in their order.

        This is allowed only while the MANIFEST lists the run. For a group with adds, wait until the
        MANIFEST lists the run, and return False if the disk has no room for this MANIFEST. For a
        group without adds, return False if the run is not listed. Such a group must be synced,
        because a deletion takes effect after its write, and the next MANIFEST contains this effect.
        """
        if self._listing is not None:
            await self._listing
        elif has_adds and not self._is_listed:
            listing = self._listing = self._shared.tasks.future()
            self._shared.run = self._run
            await self._commits.commit_soon()
            self._is_listed = self._shared.store.current.run == self._run
            self._listing = None
            resolve(listing, None)
        return self._is_listed
