"""The candidate nodes of simulated leaders, and the sessions that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.leader.leader import SimLeader
    from tests.sim.leader.world import LeaderWorld

SESSION_TIMEOUT_MS = 120
REPLACED_MS_MAX = 60
"""Maximum time from the loss of a session to its replacement, if the store can be reached."""


class SimCandidates:
    """All candidate nodes of one log.

    Attributes:
        nodes: The claim and the session of each node.
        lost: Number of sessions that expired under live clients.
    """

    def __init__(self, world: LeaderWorld) -> None:
        self._world = world
        self._sessions = 0
        self.nodes: set[tuple[str, int]] = set()
        self.lost = 0

    def new_session(self) -> int:
        """Return the id of a new session."""
        self._sessions += 1
        return self._sessions

    def submit(self, leader: SimLeader, request: Any, reply: Callable[[Any], None]) -> None:
        """Carry out a request of a leader, and answer it."""
        world, store = self._world, self._world.store
        session_id = leader.session_id
        kind = lm.CandidatesJoined if isinstance(request, lm.JoinCandidates) else lm.CandidateRead
        if store.out_until > world.now or store._fails(0.02):
            world.later(3, lambda: reply(kind(request.request, Outcome.UNAVAILABLE)))
            return
        delay = max(0, store.still_until - world.now) + world.extra.randint(1, 15)
        if isinstance(request, lm.ReadCandidate):
            world.later(delay, lambda: reply(self._look(leader, request)))
            return
        outcome = Outcome.UNKNOWN if store._fails(0.04) else Outcome.OK

        def join() -> None:
            if leader.session_id == session_id and not leader.has_ended:
                self.nodes.add((request.claim, session_id))
            reply(lm.CandidatesJoined(request.request, outcome))

        world.later(delay, join)

    def _look(self, leader: SimLeader, request: lm.ReadCandidate) -> lm.CandidateRead:
        is_there = any(claim == request.claim for claim, _ in self.nodes)
        return lm.CandidateRead(
            request.request, Outcome.OK, is_there, leader.session_id, SESSION_TIMEOUT_MS
        )

    def end(self, leader: SimLeader) -> None:
        """Delete the nodes of a leader's session."""
        self.nodes = {node for node in self.nodes if node[1] != leader.session_id}

    def end_later(self, leader: SimLeader) -> None:
        """Let the session of a dead client expire."""
        delay = self._world.extra.randint(1, SESSION_TIMEOUT_MS)
        self._world.later(delay, lambda: self.end(leader))

    def expire(self, leader: SimLeader) -> None:
        """Let the session of a live client expire. The client gets another session later."""
        if leader.has_ended or leader.machine.phase is LeaderPhase.NEW:
            return
        self.end(leader)
        self.lost += 1
        leader.session_id = self.new_session()
        delay = self._world.extra.randint(1, REPLACED_MS_MAX)
        delay += max(0, self._world.store.out_until - self._world.now)
        self._world.later(delay, lambda: leader.post(lm.SessionReplaced()))
