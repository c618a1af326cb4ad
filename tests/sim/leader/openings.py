"""Checks how an opening ends: in time, with a leader, or with a true error."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LeaderTimeoutError,
    LedgerLogError,
    LedgerNotFoundError,
    LocalProtocolError,
)
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome, StartTimer
from ledgerlog_spark.protocol.log import messages as m

if TYPE_CHECKING:
    from tests.sim.leader.leader import SimLeader

_WAITED_FOR: dict[type, str] = {
    lm.JoinCandidates: "joining the candidates",
    lm.SealLedger: "sealing an open ledger",
    lm.CreateLedger: "creating a ledger",
    m.DropLedger: "deleting a ledger that can no longer be listed",
}


class OpeningStory:
    """The requests of one leader, which decide what its opening may report at its end.

    Attributes:
        began_ms: Time of the call that opens the leader.
        attempts: Attempts to change the list with an unknown outcome, including running ones.
        dropped: Ledgers that the leader dropped.
        refused: Ledgers that can never be listed, according to an answer of the store.
        denies: Whether the opening failed with a definite error.
    """

    def __init__(self, leader: SimLeader) -> None:
        self._leader = leader
        self._out: dict[int, Any] = {}
        self._requested: list[Any] = []
        self._unheard: Counter[int] = Counter()
        self.began_ms = 0
        self._is_given_up = False
        self.attempts = 0
        self.dropped: set[int] = set()
        self.refused: set[int] = set()
        self.denies = False

    def begin(self) -> None:
        """Record the call that opens the leader. The time limit begins now."""
        world = self._leader.world
        self.began_ms = world.now
        world.later(world.open_timeout_ms + 1, self._check_in_time)

    def give_up(self) -> None:
        """Record that the caller gave up."""
        self._is_given_up = True

    def _check_in_time(self) -> None:
        leader = self._leader
        is_over = leader.machine.phase is not LeaderPhase.OPENING
        leader.world.require(
            is_over or leader.is_dead or leader.is_paused,
            f"leader {leader.number} still opens the log after {leader.world.open_timeout_ms} ms",
        )

    # --- what goes out and what comes back ---

    def note_event(self, event: Any) -> None:
        """Record an event before the machine handles it."""
        request = self._out.pop(getattr(event, "request", -1), None)
        renewal = self._leader.machine._candidacy.attempts.request
        self._requested = [
            each
            for each in self._out.values()
            if type(each) is not StartTimer and each.request != renewal
        ]
        if type(request) is m.WriteHead and event.outcome is not MetadataOutcome.UNKNOWN:
            self.attempts -= 1
            self._unheard.subtract(_listed_by(request))
            if event.outcome is MetadataOutcome.GONE:
                self.refused.update(request.listed)

    def note_request(self, request: Any) -> None:
        """Record a request of the machine."""
        self._out[request.request] = request
        if type(request) is m.WriteHead:
            self.attempts += 1
            self._unheard.update(_listed_by(request))
            again = self.refused.intersection(request.listed)
            number = self._leader.number
            self._leader.world.require(not again, f"leader {number} goes on listing {again}")
        elif type(request) is m.DropLedger:
            self.dropped.add(request.ledger_id)

    # --- how it ended ---

    def opened(self) -> None:
        """Check an opening that ended with a leader."""
        self._check_ledgers()

    def failed(self, error: LedgerLogError) -> None:
        """Check an opening that ended with an error."""
        leader = self._leader
        world = leader.world
        self._check_ledgers()
        mine = {ledger.ledger_id for ledger in leader.mine}
        listed = {ledger.ledger_id for ledger in world.store.state.head.value.open_ledgers}
        if error.definite:
            self.denies = True
            world.require(not mine & listed, f"{error!r} is definite, and its ledger is listed")
        if isinstance(error, LocalProtocolError):
            world.require(self._is_given_up, f"nobody gave it up: {error!r}")
        if isinstance(error, LocalProtocolError | LeaderTimeoutError):
            is_explained = error.definite or self.attempts > 0
            world.require(is_explained, f"nothing is unknown, but {error!r} is not definite")
        if isinstance(error, LeaderTimeoutError):
            self._check_timeout(error)
        world.require(
            not isinstance(error, LedgerNotFoundError), f"every listed ledger is there: {error!r}"
        )

    def _check_timeout(self, error: LeaderTimeoutError) -> None:
        world = self._leader.world
        age_ms = world.now - self.began_ms
        world.require(age_ms >= world.open_timeout_ms, f"{error!r} after {age_ms} ms")
        world.require(error.retriable, f"{error!r} cannot be tried again")
        (request,) = self._requested
        waited_for = _WAITED_FOR.get(type(request), "reading or changing the list")
        world.require(error.waited_for == waited_for, f"{error!r} while {request} was out")
        sealed = request.ledger_id if type(request) is lm.SealLedger else None
        world.require(error.fields.get("ledger_id") == sealed, f"{error!r} while {request} was out")

    def _check_ledgers(self) -> None:
        """Check that a second ledger is created only with a reason.

        The first ledger must have been swept, or a change with an unknown outcome may list it.
        """
        made = len(self._leader.mine) - len(self.refused)
        self._leader.world.require(
            made <= 1 + self.attempts,
            f"leader {self._leader.number} made {made} ledgers, {self.attempts} changes are unsure",
        )

    def check_left(self) -> None:
        """Check that each created ledger was listed or released, or a late write may list it."""
        leader = self._leader
        for ledger in leader.mine:
            number = ledger.ledger_id
            is_known = number in leader.world.checks.listed_ever or number in self.dropped
            leader.world.require(
                is_known or self._unheard[number] > 0,
                f"leader {leader.number} left ledger {number} behind, which no list can name",
            )


def _listed_by(request: m.WriteHead) -> list[int]:
    return [ledger.ledger_id for ledger in request.head.open_ledgers]
