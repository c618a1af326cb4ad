"""The state of the repair of a bookie, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from bookie_server.core.repair import RepairOutcome
from bookie_server.service.repair.one_ledger import RepairCounters, RepairReport
from ledgerlog_spark.model import NO_ENTRY, LedgerState

LEDGERS_SHOWN_MAX = 10_000
"""Maximum number of ledgers for which the problem is stored. Further ledgers are only counted."""
MISSING_SHOWN_MAX = 10


class RepairState(Enum):
    """The current work of the repair."""

    NOTHING_TO_DO = "nothing to do"
    WAITS_FOR_STORE = "waits until the metadata store has the doubt"
    PASS = "repairs all ledgers"  # noqa: S105 - no password
    ROUNDS = "tries ledgers in limbo again"


@dataclass(frozen=True, slots=True)
class LimboLedger:
    """A ledger that its last repair could not clear.

    Attributes:
        outcome: How the repair ended.
        problem: The last answer of another bookie that did not contain the requested entry. Empty
            if there was no such answer.
        state: The state of the ledger in its metadata, or None if the metadata was not read.
        missing: The first entries that no other bookie returned.
        missing_count: Number of these entries.
    """

    ledger_id: int
    outcome: RepairOutcome
    problem: str = ""
    state: LedgerState | None = None
    missing: tuple[int, ...] = ()
    missing_count: int = 0


@dataclass(frozen=True, slots=True)
class PassReport:
    """The result of a pass over all ledgers.

    Attributes:
        is_whole: Whether the pass was complete and ended the doubt. Otherwise, the pass is
            repeated.
        epoch: The epoch of doubt.
        ledgers: Number of ledgers that were repaired or tried.
        in_limbo: Number of ledgers that stay in limbo.
        needs_operator: Number of ledgers in limbo that need an operator.
    """

    is_whole: bool
    epoch: int
    ledgers: int
    in_limbo: int
    needs_operator: int
    entries_fetched: int
    bytes_fetched: int
    duration_ms: int


@dataclass(slots=True)
class RepairProgress:
    """The state of the repair. Threads other than the event loop may only read it.

    Attributes:
        ledgers_left: Number of ledgers of the current pass or round that were not tried yet.
            Between two rounds, the number of ledgers that the next round tries.
        ledgers_done: Number of ledgers of the current pass or round that were tried.
        passes: Number of passes that have ended a doubt.
        in_limbo: The ledgers whose last repair could not clear them, at most `LEDGERS_SHOWN_MAX`.
    """

    counters: RepairCounters = field(default_factory=RepairCounters)
    state: RepairState = RepairState.NOTHING_TO_DO
    ledgers_left: int = 0
    ledgers_done: int = 0
    passes: int = 0
    in_limbo: dict[int, LimboLedger] = field(default_factory=dict)

    @property
    def needs_operator(self) -> int:
        """Number of ledgers in `in_limbo` that need an operator."""
        needs = RepairOutcome.NEEDS_OPERATOR
        return sum(one.outcome is needs for one in tuple(self.in_limbo.values()))

    def note(self, ledger_id: int, report: RepairReport) -> None:
        """Record the end of a repair."""
        ended = report.ended
        if ended.outcome in (RepairOutcome.CLEARED, RepairOutcome.DELETED):
            self.counters.ledgers_cleared += ended.outcome is RepairOutcome.CLEARED
            self.in_limbo.pop(ledger_id, None)
        elif ledger_id in self.in_limbo or len(self.in_limbo) < LEDGERS_SHOWN_MAX:
            self.in_limbo[ledger_id] = LimboLedger(
                ledger_id,
                ended.outcome,
                report.problem,
                None if ended.record is None else ended.record.value.state,
                ended.missing[:MISSING_SHOWN_MAX],
                ended.missing_count,
            )

    def keep_only(self, ledger_ids: frozenset[int]) -> None:
        """Forget all ledgers except `ledger_ids`, because they have left limbo without a repair."""
        for ledger_id in self.in_limbo.keys() - ledger_ids:
            del self.in_limbo[ledger_id]

    def as_fields(self) -> dict[str, object]:
        """Return the state and counters of the repair, for the status page and the admin route."""
        counters = self.counters
        return {
            "repairState": self.state.value,
            "ledgersLeft": self.ledgers_left,
            "ledgersDone": self.ledgers_done,
            "ledgersInLimbo": len(self.in_limbo),
            "ledgersThatNeedAnOperator": self.needs_operator,
            "ledgersCleared": counters.ledgers_cleared,
            "entriesFetched": counters.entries_fetched,
            "bytesFetched": counters.bytes_fetched,
            "entriesRefused": counters.entries_refused,
            "ledgersRecovered": counters.recoveries,
            "passes": self.passes,
        }


def repair_gauges(progress: RepairProgress) -> dict[str, Callable[[], float]]:
    """Return the functions that return the values of the gauges of the repair, by name."""
    counters = progress.counters
    return {
        "repair_ledgers_left": lambda: progress.ledgers_left,
        "repair_needs_operator": lambda: progress.needs_operator,
        "repair_ledgers_cleared": lambda: counters.ledgers_cleared,
        "repair_entries_fetched": lambda: counters.entries_fetched,
        "repair_bytes_fetched": lambda: counters.bytes_fetched,
        "repair_entries_refused": lambda: counters.entries_refused,
    }


def quiet_key(report: RepairReport, last_accepted_id: int = NO_ENTRY) -> object:
    """Return a value that differs after each change of the record and after each new entry."""
    record = report.ended.record
    return (None if record is None else record.version), last_accepted_id
