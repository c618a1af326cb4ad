"""Decides which ledger is repaired next, until no ledger of the bookie is in limbo.

A ledger for which a client got the answer "unknown" is repaired before other ledgers, even during a
pass or a round. While the doubt lasts, the repair makes passes over all ledgers, until one pass is
complete. After that, rounds repair the ledgers that are still in limbo. The pauses between rounds
become longer while the rounds clear no ledgers. If an idle ledger stays open, it is recovered and
closed. The repair does not wait for clients, and clients do not wait for the repair.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from bookie_server.core.doubt import Doubt
from bookie_server.core.repair import (
    EndDoubt,
    KeepInLimbo,
    ListLedgers,
    PassEffect,
    PassEnded,
    RecoveryLimits,
    RepairLedger,
    RepairOutcome,
    RepairPass,
    should_recover,
)
from bookie_server.errors import StorageError
from bookie_server.ports import Priority
from bookie_server.service.logging import fields_of
from bookie_server.service.repair.damaged import DamagedLedgers
from bookie_server.service.repair.one_ledger import (
    RepairParts,
    RepairReport,
    repair_ledger,
)
from bookie_server.service.repair.progress import (
    PassReport,
    RepairProgress,
    RepairState,
    quiet_key,
)
from ledgerlog_spark.errors import LedgerLogError, MetadataError
from ledgerlog_spark.model import Code
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

ASKED_MAX = 1_000
"""Maximum number of ledgers that wait because a client got the answer "unknown"."""
ASKED_IN_TURN_MAX = 16
"""Maximum number of ledgers with the answer "unknown" that are repaired before the next ledger of a
pass or round."""
IDS_IN_TURN_MAX = 500
RECOVERIES_MAX = 4
"""Maximum number of ledgers that are recovered at a time."""
ROUND_PART = 4
"""Factor: a pause between two rounds is at least four times as long as the last round."""

ROUNDS = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000, attempts_max=NO_LIMIT)


@dataclass(frozen=True, slots=True)
class RepairTimes:
    """Pauses of the repair.

    Attributes:
        poll_ms: Pause between two checks of the doubt and of the ledgers that clients wait for.
        rounds: Pauses between two rounds that clear no ledgers, and between two passes.
        asked_again_ms: Minimum time between two repairs of a ledger that clients wait for.
        limits: Times after which a ledger is recovered.
    """

    poll_ms: int = 1_000
    rounds: RetryPolicy = ROUNDS
    asked_again_ms: int = 5_000
    limits: RecoveryLimits = field(default_factory=RecoveryLimits)


Recover = Callable[[int, RepairReport], Awaitable[None]]
"""Function that recovers and closes a ledger."""


class Repairs:
    """Repairs the ledgers of one bookie in the background."""

    def __init__(
        self,
        parts: RepairParts,
        progress: RepairProgress,
        recover: Recover,
        times: RepairTimes,
        *,
        on_pass: Callable[[PassReport], None] = lambda _report: None,
        on_deleted: Callable[[int], None] = lambda _ledger_id: None,
        report: Callable[[str, Mapping[str, object]], None] = lambda _step, _fields: None,
    ) -> None:
        self._parts = parts
        self._storage = parts.storage
        self._tasks = parts.tasks
        self._clock = parts.clock
        self.progress = progress
        self._recover = recover
        self._times = times
        self._on_pass = on_pass
        self._on_deleted = on_deleted
        self._report = report  # gets the step and the fields of each failure
        self._epoch = -1
        self._may_be_in_limbo = True
        self._next_ms = 0  # time of the next pass or round
        self._failures = 0  # number of consecutive rounds and passes that cleared nothing
        self._asked: dict[int, None] = {}
        self._tried_ms: dict[int, int] = {}  # per ledger, time of its last repair for a client
        self._quiet_since: dict[int, tuple[object, int]] = {}
        self._recovering: set[int] = set()
        self._damaged = DamagedLedgers()

    def start(self) -> None:
        """Repair ledgers in limbo in the background until `stop` is called."""
        self._tasks.spawn("repair", self._run(), Priority.BACKGROUND)

    def stop(self) -> None:
        """Begin no further step. The current step ends when the answers to its requests arrive."""
        self._parts.is_stopped = self._parts.pace.is_stopped = True

    def request(self, ledger_id: int) -> None:
        """Repair a ledger soon."""
        if len(self._asked) < ASKED_MAX:
            self._tried_ms.pop(ledger_id, None)
            self._asked[ledger_id] = None
        self._may_be_in_limbo = True

    async def _run(self) -> None:
        while not self._parts.is_stopped:
            await self.step()
            if not self._parts.is_stopped:
                await self._tasks.sleep(self._times.poll_ms)

    async def step(self) -> None:
        """Run a pass or a round if it is due.

        A failure of a store only delays the pass or round.
        """
        try:
            await self._step()
        except (MetadataError, StorageError) as error:
            self._report("repair", fields_of(error))
            self._pause()

    async def _step(self) -> None:
        doubt = self._storage.doubt
        if doubt.epoch != self._epoch:
            self._epoch, self._may_be_in_limbo = doubt.epoch, True
            self._next_ms = self._failures = 0
        if doubt.epoch and not doubt.may_be_repaired:
            self.progress.state = RepairState.WAITS_FOR_STORE
            return
        await self._repair_asked(doubt)
        await self._repair_damaged(doubt)
        if self._clock.monotonic_ms() < self._next_ms:
            return
        if not doubt.is_over:
            await self._pass(doubt)
        elif self._may_be_in_limbo:
            await self._round(doubt)

    def _pause(self) -> None:
        """Set the time of the next pass or round. The pause becomes longer with each call."""
        self._failures += 1
        pause_ms = self._times.rounds.pause_ms(self._failures)
        self._next_ms = self._clock.monotonic_ms() + pause_ms

    # Ledgers that clients wait for.

    async def _repair_asked(self, doubt: Doubt, count_max: int = ASKED_MAX) -> None:
        """Repair ledgers that clients wait for.

        During a pass, their number is limited. Otherwise, if clients always requested ledgers in
        limbo, the pass would never end.
        """
        now_ms, again_ms = self._clock.monotonic_ms(), self._times.asked_again_ms
        if len(self._tried_ms) > ASKED_MAX:
            self._tried_ms.clear()
        for ledger_id in self._storage.take_asked():
            is_due = now_ms - self._tried_ms.get(ledger_id, -again_ms) >= again_ms
            if is_due and len(self._asked) < ASKED_MAX:
                self._asked[ledger_id] = None
        for ledger_id in tuple(islice(self._asked, count_max)):
            if self._parts.is_stopped:
                return
            # If the ledger has a state, it leaves limbo before the end of the pass.
            await self._repair(ledger_id, doubt, has_state=True)
            del self._asked[ledger_id]
            self._tried_ms[ledger_id] = self._clock.monotonic_ms()

    async def _repair_damaged(self, doubt: Doubt) -> None:
        """Fetch the entries that a scrub or a read found damaged.

        The ledgers need not be in limbo. So this repair recovers no ledger, and an open ledger
        stays open. Of an open ledger, the entries up to the LAC of the other bookies are fetched.
        """
        if self._damaged.has_room:
            reported = self._storage.take_damaged()
            self._damaged.add((each for each, _ in reported), self._clock.monotonic_ms())
        for ledger_id in self._damaged.due(self._clock.monotonic_ms()):
            await self._repair_asked(doubt, ASKED_IN_TURN_MAX)
            if self._parts.is_stopped or self._storage.doubt.epoch != doubt.epoch:
                return
            report = await repair_ledger(self._parts, ledger_id, doubt, has_state=True)
            outcome, now_ms = report.ended.outcome, self._clock.monotonic_ms()
            is_over = outcome not in (RepairOutcome.INCOMPLETE, RepairOutcome.NEEDS_OPERATOR)
            self._damaged.note(ledger_id, now_ms, is_over=is_over)
            if not is_over:
                fields = {"ledger_id": ledger_id, "reason": report.problem or outcome.value}
                self._report("damage_not_repaired", fields)
            if outcome is RepairOutcome.DELETED:
                self._on_deleted(ledger_id)
            elif outcome is RepairOutcome.CLEARED:
                self.progress.note(ledger_id, report)

    # The pass.

    async def _pass(self, doubt: Doubt) -> None:
        progress, counters = self.progress, self.progress.counters
        began_ms = self._clock.monotonic_ms()
        entries, size_bytes = counters.entries_fetched, counters.bytes_fetched
        progress.state, progress.ledgers_done = RepairState.PASS, 0
        machine = RepairPass(doubt)
        effect = machine.begin()
        while not isinstance(effect, PassEnded):
            if self._parts.is_stopped or self._storage.doubt.epoch != doubt.epoch:
                return
            effect = await self._perform(machine, effect, doubt)
            progress.ledgers_left = machine.left_count
        if effect.is_whole:
            progress.passes += 1
            self._next_ms = self._failures = 0
        else:
            self._pause()
        self._on_pass(
            PassReport(
                is_whole=effect.is_whole,
                epoch=doubt.epoch,
                ledgers=progress.ledgers_done,
                in_limbo=len(progress.in_limbo),
                needs_operator=progress.needs_operator,
                entries_fetched=counters.entries_fetched - entries,
                bytes_fetched=counters.bytes_fetched - size_bytes,
                duration_ms=self._clock.monotonic_ms() - began_ms,
            )
        )

    async def _perform(self, machine: RepairPass, effect: PassEffect, doubt: Doubt) -> PassEffect:
        match effect:
            case ListLedgers():
                ids, is_whole = await self._list()
                return machine.listed(ids, is_whole=is_whole)
            case RepairLedger(ledger_id):
                await self._repair_asked(doubt, ASKED_IN_TURN_MAX)
                report = await self._repair(ledger_id, doubt)
                self.progress.ledgers_done += 1
                return machine.repaired(ledger_id, report.ended.outcome)
            case KeepInLimbo(ledger_id):
                code = await self._storage.keep_in_limbo(ledger_id)
                return machine.handled() if code is Code.OK else PassEnded(is_whole=False)
            case EndDoubt(epoch):
                await self._storage.end_doubt(epoch)
                return machine.ended()
            case _:
                raise AssertionError(effect)

    async def _list(self) -> tuple[array[int], bool]:
        """Return the ids of all ledgers except cleared ledgers, and whether the list is complete.

        A ledger is cleared if it has a state and is not in limbo. The state must be checked before
        limbo, because an add may create a state between the two checks. A ledger with a new state
        is in limbo, and the state may not be durable. If limbo were checked first, the ledger would
        not be in limbo before the add, and would have a state after the add. So it would count as
        cleared.
        """
        unknown, is_whole = array("q"), True
        try:
            async for ledger_id in self._parts.records.ids():
                if not self._storage.is_known(ledger_id):
                    unknown.append(ledger_id)
        except MetadataError as error:
            self._report("listing", fields_of(error))
            is_whole = False
        limbo = self._storage.limbo_ledgers()
        chosen = array("q")
        for number, ledger_id in enumerate(_merged(unknown, limbo)):
            if number % IDS_IN_TURN_MAX == 0:
                await self._tasks.give_way()
            chosen.append(ledger_id)
        return chosen, is_whole

    # The rounds.

    async def _round(self, doubt: Doubt) -> None:
        """Repair each ledger that is still in limbo."""
        progress = self.progress
        ledgers = self._storage.limbo_ledgers()
        progress.keep_only(frozenset(ledgers))
        for ledger_id in self._quiet_since.keys() - frozenset(ledgers):
            del self._quiet_since[ledger_id]
        if not ledgers:
            self._may_be_in_limbo = False
            progress.state, progress.ledgers_left = RepairState.NOTHING_TO_DO, 0
            return
        began_ms, cleared = self._clock.monotonic_ms(), progress.counters.ledgers_cleared
        progress.state, progress.ledgers_done = RepairState.ROUNDS, 0
        for number, ledger_id in enumerate(ledgers):
            if self._parts.is_stopped or self._storage.doubt.epoch != doubt.epoch:
                return
            progress.ledgers_left = len(ledgers) - number
            await self._repair_asked(doubt, ASKED_IN_TURN_MAX)
            await self._repair(ledger_id, doubt)
            progress.ledgers_done += 1
        progress.ledgers_left = len(progress.in_limbo)
        now_ms = self._clock.monotonic_ms()
        if progress.counters.ledgers_cleared > cleared:
            self._failures = 0
        self._pause()
        self._next_ms = max(self._next_ms, now_ms + ROUND_PART * (now_ms - began_ms))

    # One ledger.

    async def _repair(
        self, ledger_id: int, doubt: Doubt, *, has_state: bool = False
    ) -> RepairReport:
        has_state = has_state or self._storage.is_known(ledger_id)
        report = await repair_ledger(self._parts, ledger_id, doubt, has_state=has_state)
        self.progress.note(ledger_id, report)
        if report.ended.outcome is RepairOutcome.DELETED:
            # A client may read from a ledger that never existed. So a deletion is reported only if
            # this bookie has a state of the ledger.
            if self._storage.is_known(ledger_id):
                self._on_deleted(ledger_id)
        elif report.ended.outcome is RepairOutcome.WAITING:
            self._perhaps_recover(ledger_id, report)
        return report

    def _perhaps_recover(self, ledger_id: int, report: RepairReport) -> None:
        """Recover a ledger that has not changed for a long time."""
        now_ms = self._clock.monotonic_ms()
        seen = quiet_key(report, self._storage.last_accepted_id(ledger_id))
        before, since_ms = self._quiet_since.get(ledger_id, (None, now_ms))
        if before != seen:
            since_ms = now_ms
        self._quiet_since[ledger_id] = (seen, since_ms)
        if len(self._recovering) >= RECOVERIES_MAX or ledger_id in self._recovering:
            return
        if should_recover(report.ended, now_ms - since_ms, self._times.limits):
            self._quiet_since[ledger_id] = (seen, now_ms)
            self._recovering.add(ledger_id)
            self._tasks.spawn(
                "recovery of a ledger", self._recovery(ledger_id, report), Priority.BACKGROUND
            )

    async def _recovery(self, ledger_id: int, report: RepairReport) -> None:
        try:
            await self._recover(ledger_id, report)
        except LedgerLogError as error:
            self._report("recovery", {**fields_of(error), "ledger_id": ledger_id})
        else:
            self.progress.counters.recoveries += 1
            self.request(ledger_id)
        finally:
            self._recovering.discard(ledger_id)


def _merged(*ascending: Iterable[int]) -> Iterator[int]:
    """Yield each number of the ascending iterables once, in ascending order."""
    last = None
    for each in heapq.merge(*ascending):
        if each != last:
            yield each
        last = each
