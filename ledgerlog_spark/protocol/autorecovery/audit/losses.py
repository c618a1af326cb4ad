"""Decides which bookies are lost, and when their ledgers may be marked (AUTORECOVERY.md#N1-N5).

The auditor passes the state of the cluster to `BookieLosses` after each read. `BookieLosses` has no
clock. Its attribute `wait` contains the wait that it needs, and the auditor calls `wait_is_over`
when this wait is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterState

HELD_SESSIONS = 2
"""Duration of the wait in a storm, when many bookies are lost, as a number of session time-outs."""


class LossStage(Enum):
    """The stage of one lost bookie."""

    NEW = "its ledgers are not marked yet"
    RIPE = "its ledgers are marked now"
    HANDLED = "all its ledgers were marked"
    AGAIN = "all its ledgers were marked, and are marked again now"


class WaitKind(Enum):
    """The reason why the ledgers of lost bookies are not marked yet."""

    NONE = "nothing waits"
    HOLD = "too many bookies are lost, or the store was unavailable"
    DELAY = "only one bookie is lost, and this bookie may return"


@dataclass(frozen=True, slots=True)
class LossWait:
    """A wait before ledgers are marked. The machine restarts its timer only if the wait changes."""

    kind: WaitKind
    duration_ms: int = 0
    number: int = 0


NO_WAIT = LossWait(WaitKind.NONE)


class BookieLosses:
    """The lost bookies."""

    def __init__(self, session_timeout_ms: int) -> None:
        """Begin without losses, as after an outage of the store (AUTORECOVERY.md#N3).

        Args:
            session_timeout_ms: The longest time that a bookie needs to register again after it has
                lost its session.
        """
        self._hold_ms = HELD_SESSIONS * session_timeout_ms
        self._stages: dict[str, LossStage] = {}
        self._held: set[str] = set()  # bookies that stayed lost from the start of a hold to its end
        self._holding: frozenset[str] = frozenset()  # bookies lost when the present hold began
        self._delayed = ""  # the bookie whose loss causes the present delay
        self._waited: set[str] = set()  # bookies that stayed lost during a whole delay
        self._was_away = True
        self._hurried: set[str] = set()  # bookies lost when an operator requested an audit
        self._is_walk_wanted = False
        self._is_enabled = False
        self._delay: tuple[int, int] | None = None  # the newest delay, and the number of its writes
        self._numbers = 0
        self.wait = NO_WAIT

    @property
    def lost(self) -> tuple[str, ...]:
        """All lost bookies."""
        return tuple(self._stages)

    @property
    def ripe(self) -> frozenset[str]:
        """The lost bookies whose ledgers may be marked; none while auto-recovery is disabled."""
        if not self._is_enabled:
            return frozenset()
        marked = (LossStage.RIPE, LossStage.AGAIN)
        return frozenset(one for one, stage in self._stages.items() if stage in marked)

    def store_was_away(self) -> None:
        """Hold all losses, because bookies may not have registered again yet (AUTORECOVERY.md#N3).

        While the store was unavailable, a bookie may have returned, and may have been lost again.
        So if not all ledgers of a lost bookie were marked yet, its whole delay is repeated. After
        the hold, the ledgers of all other lost bookies are marked again.
        """
        self._was_away = True
        self._held.clear()
        self._waited.clear()
        for bookie_id, stage in self._stages.items():
            is_new = stage in (LossStage.NEW, LossStage.RIPE)
            self._stages[bookie_id] = LossStage.NEW if is_new else LossStage.HANDLED
        self.wait = NO_WAIT

    def observe(self, state: ClusterState, named: Iterable[str]) -> None:
        """Update the losses after a read of the cluster. `named` are the bookies in the records."""
        candidates = state.known.union(named)
        lost = self._lost(state, candidates)
        for bookie_id in [one for one in self._stages if one not in lost]:
            self._forget(bookie_id)
        for bookie_id in sorted(lost):
            self._stages.setdefault(bookie_id, LossStage.NEW)
        self._note_delay(state)
        self._is_enabled = state.is_enabled
        is_storm = 2 * len(lost) >= len(candidates)
        self._decide(is_storm=is_storm, delay_ms=state.delay_ms)

    def wait_is_over(self) -> None:
        """Note that the wait has ended. The next `observe` then decides whether to mark ledgers."""
        if self.wait.kind is WaitKind.HOLD:
            self._held |= self._holding
            if self._was_away:
                self._was_away = False
                self.mark_again()
        elif self.wait.kind is WaitKind.DELAY:
            self._waited.add(self._delayed)
        self.wait = NO_WAIT

    def handled(self, bookie_ids: Iterable[str]) -> None:
        """Note that a whole walk has ended. It has marked all ledgers of these bookies."""
        for bookie_id in bookie_ids:
            if bookie_id in self._stages:
                self._stages[bookie_id] = LossStage.HANDLED

    def mark_again(self) -> None:
        """Make the next walk mark all ledgers of the bookies in stage `HANDLED` once more."""
        for bookie_id, stage in self._stages.items():
            if stage is LossStage.HANDLED:
                self._stages[bookie_id] = LossStage.AGAIN

    def take_wanted_walk(self) -> bool:
        """Whether an operator requested an audit since the last call (AUTORECOVERY.md#N5)."""
        wanted, self._is_walk_wanted = self._is_walk_wanted, False
        return wanted

    def _lost(self, state: ClusterState, candidates: frozenset[str]) -> frozenset[str]:
        """Return the candidates that are not registered (AUTORECOVERY.md#N1)."""
        return candidates - state.registered

    def _forget(self, bookie_id: str) -> None:
        """Forget the loss of a bookie that has returned (AUTORECOVERY.md#N2)."""
        del self._stages[bookie_id]
        self._held.discard(bookie_id)
        self._waited.discard(bookie_id)
        self._hurried.discard(bookie_id)
        self._holding -= {bookie_id}

    def _new(self) -> list[str]:
        return [one for one, stage in self._stages.items() if stage is LossStage.NEW]

    def _note_delay(self, state: ClusterState) -> None:
        """If the delay was written, restart the wait.

        If its value has not changed, request an audit.
        """
        before, self._delay = self._delay, (state.delay_ms, state.delay_writes)
        if before is None or before == self._delay:
            return
        if before[0] == state.delay_ms:
            self._is_walk_wanted = True
            self._hurried |= set(self._new())
            self.mark_again()
        if self.wait.kind is WaitKind.DELAY:
            self.wait = NO_WAIT

    def _decide(self, *, is_storm: bool, delay_ms: int) -> None:
        new = self._new()
        if self._must_hold(new, is_storm=is_storm):
            if self.wait.kind is not WaitKind.HOLD:
                self._holding = frozenset(new)
                self._begin(WaitKind.HOLD, self._hold_ms)
            return
        ripe = sum(stage is LossStage.RIPE for stage in self._stages.values())
        is_single = len(new) == 1 and not ripe
        if is_single and delay_ms and new[0] not in self._waited | self._hurried:
            if self.wait.kind is not WaitKind.DELAY or self._delayed != new[0]:
                self._delayed = new[0]
                self._begin(WaitKind.DELAY, delay_ms)
            return
        self.wait = NO_WAIT
        for bookie_id in new:
            self._stages[bookie_id] = LossStage.RIPE

    def _must_hold(self, new: list[str], *, is_storm: bool) -> bool:
        """Whether to wait, because bookies may be registering again (AUTORECOVERY.md#N3)."""
        return self._was_away or (is_storm and any(one not in self._held for one in new))

    def _begin(self, kind: WaitKind, duration_ms: int) -> None:
        self._numbers += 1
        self.wait = LossWait(kind, duration_ms, self._numbers)
