"""Bookies that register, crash, return, and hold copies of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.auditor.store import SESSION_MS, US

if TYPE_CHECKING:
    from tests.sim.auditor.world import AuditWorld


class AuditBookie:
    """One bookie.

    Attributes:
        is_alive: Whether its process runs.
        has_lost_session: Whether the store lost its session while its process ran, and it has not
            registered again yet.
    """

    def __init__(self, world: AuditWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = False
        self.has_lost_session = False
        self.session = 0
        self.lives = 0
        self.lost_us: int | None = None  # when its registration was deleted

    def start(self) -> None:
        """Start the process, which registers after a moment."""
        if self.is_alive:
            return
        self.is_alive = True
        self.lives += 1
        self.register_later(self.world.draws.integer(1, 20, self.name, "starts", self.lives))

    def crash(self) -> None:
        """End the process. Its session ends after the session time."""
        if not self.is_alive:
            return
        self.is_alive = self.has_lost_session = False
        self.lives += 1
        session, delay_ms = self.session, SESSION_MS
        self.world.scheduler.call_later(delay_ms * US, lambda: self._expire(session))

    def session_lost(self) -> None:
        """The store has ended the session of a process that runs: it registers again."""
        self.lives += 1
        self.has_lost_session = True
        self.register_later(self.world.draws.integer(1, SESSION_MS, self.name, "again", self.lives))

    def register_later(self, delay_ms: int) -> None:
        life = self.lives
        self.world.scheduler.call_later(delay_ms * US, lambda: self._register(life))

    def _register(self, life: int) -> None:
        if not self.is_alive or life != self.lives:
            return
        store = self.world.store
        if not store.is_up:
            self.register_later(5)
            return
        store.end_session(self.session)
        self.session = store.new_session()
        self.has_lost_session = False
        self.lost_us = None
        store.register(self.name, self.session)
        self.world.note(self.name, "registered")

    def _expire(self, session: int) -> None:
        store = self.world.store
        if not store.is_up:
            self.world.scheduler.call_later(SESSION_MS * US, lambda: self._expire(session))
        elif store.is_live(session):
            self.lost_us = self.world.scheduler.now_us
            self.world.note(self.name, "lost")
            store.end_session(session)
