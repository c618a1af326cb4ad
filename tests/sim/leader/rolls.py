"""Checks when a leader rolls to another ledger: neither too early nor too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.sim.leader.leader import SimLeader
    from tests.sim.leader.ledgers import SimLedger

ENTRY_SIZE_BYTES = 100
CLOCK_MS = 20
"""Maximum difference between the clocks of leaders, and maximum age of the store's last answer. A
clock of the store that was set back comes in addition."""


class RollStory:
    """The ledger that a leader appends to, and the reasons for a roll."""

    def __init__(self, leader: SimLeader) -> None:
        self._leader = leader
        self._current: SimLedger | None = None
        self._opened_ms = 0
        self._is_requested = False
        self._was_full = False

    @property
    def ledger_id(self) -> int:
        """The id of the ledger that the leader appends to; -1 before the first."""
        return -1 if self._current is None else self._current.ledger_id

    def begin(self, ledger_id: int, opened_ms: int) -> None:
        """Record that appends go to this ledger. Its age begins at `opened_ms`."""
        self._current = self._leader.world.ledgers.by_id[ledger_id]
        self._opened_ms = opened_ms
        self._is_requested = self._was_full = False

    def request(self) -> None:
        """Record that the application requests a roll. An empty ledger is not rolled."""
        self._is_requested |= self._current is not None and bool(self._current.stored)

    def append(self) -> None:
        """Record an accepted append, and check the size of its ledger."""
        self._was_full = self._is_full

    def rolled(self, rolled: lm.LedgerRolled) -> None:
        """Check that there was a reason for a roll."""
        leader, left = self._leader, self._current
        assert left is not None
        age_ms = leader.world.now - self._opened_ms + CLOCK_MS + leader.world.set_back_ms
        is_old = age_ms >= leader.machine.properties.roll_ms
        is_due = self._is_requested or left.is_broken or is_old or self._is_full
        leader.world.require(
            is_due, f"leader {leader.number} leaves {left.ledger_id} after {age_ms} ms for nothing"
        )
        # The last time that the machine got is that of the last append.
        opened_ms = leader.appends[-1].started_ms if leader.appends else self._opened_ms
        self.begin(rolled.ledger_id, opened_ms)

    @property
    def _is_full(self) -> bool:
        assert self._current is not None
        size_bytes = ENTRY_SIZE_BYTES * len(self._current.stored)
        return size_bytes >= self._leader.machine.properties.roll_bytes

    def check_under_way(self, open_requests: Iterable[object]) -> None:
        """Check that a roll that is due makes progress: a request for it is running."""
        leader = self._leader
        if self._current is None or leader.machine.phase is not LeaderPhase.LEADING:
            return
        is_due = self._was_full or self._is_requested
        is_left = not is_due or any(True for _ in open_requests)
        leader.world.require(is_left, f"ledger {self._current.ledger_id} is due, and goes on")
