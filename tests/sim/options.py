"""What one schedule is like: sizes, workload, and which faults are on at all."""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.model import Quorum
from tests.sim.draws import Draws

QUORUMS = (
    Quorum(3, 3, 2),
    Quorum(3, 3, 2),
    Quorum(3, 3, 2),
    Quorum(3, 2, 2),
    Quorum(2, 2, 2),
    Quorum(4, 3, 2),
    Quorum(3, 3, 3),
    Quorum(5, 3, 2),
    Quorum(3, 2, 1),
)


@dataclass(frozen=True)
class Options:
    """One schedule. Times are virtual milliseconds, rates are chances for each message."""

    quorum: Quorum = QUORUMS[0]
    bookies: int = 5
    entries: int = 12
    run_entries_max: int = 1
    window_entries: int = 4
    gap_ms: int = 2
    ending: str = "close"
    ending_at_ms: int = 40
    recoverers: int = 1
    recoverers_from_ms: int = 5
    recoverers_to_ms: int = 60
    recover_when_stored: int | None = None
    readers: int = 1
    rpc_timeout_ms: int = 40
    hedge_ms: int = 15
    recovery_batch_entries: int = 1
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    tail_rate: float = 0.0
    tail_ms: int = 60
    partitions: int = 0
    crashes: int = 0
    power_losses: int = 0
    disk_errors: int = 0
    freezes: int = 0
    collections: int = 0
    cas_lost_rate: float = 0.0
    cas_late_rate: float = 0.0
    store_away_rate: float = 0.0
    horizon_ms: int = 400


def drawn(draws: Draws) -> Options:
    """The options of a seed: every kind of fault is on in some seeds and off in others."""
    quorum = draws.pick(QUORUMS, "quorum")
    tight = draws.uniform("tight") < 0.5
    heavy = draws.uniform("heavy") < 0.35

    def rate(kind: str, most: float) -> float:
        if draws.uniform("swarm", kind) < 0.5:
            return 0.0
        return most * draws.uniform("rate", kind) * (2.0 if heavy else 1.0)

    def count(kind: str, most: int) -> int:
        return 0 if draws.uniform("swarm", kind) < 0.6 else draws.integer(1, most, "count", kind)

    return Options(
        quorum=quorum,
        bookies=quorum.ensemble_size + draws.integer(0, 2, "spares"),
        entries=draws.integer(1, 14, "entries"),
        run_entries_max=draws.pick((1, 1, 2, 5), "run_entries"),
        window_entries=draws.pick((1, 3, 8, 64), "window"),
        gap_ms=draws.pick((0, 1, 3, 10), "gap"),
        ending=draws.pick(("close", "close", "close_early", "crash", "abandon"), "ending"),
        ending_at_ms=draws.integer(1, 30 if tight else 150, "ending_at"),
        recoverers=draws.pick((0, 1, 1, 2, 3), "recoverers"),
        recoverers_from_ms=0,
        recoverers_to_ms=20 if tight else 150,
        recover_when_stored=draws.pick((None, None, 0, 1, 3), "when stored"),
        readers=draws.pick((0, 0, 1), "readers"),
        rpc_timeout_ms=draws.pick((10, 40, 120), "timeout"),
        recovery_batch_entries=draws.pick((1, 2, 5, 64), "recovery batch"),
        drop_rate=rate("drop", 0.12),
        duplicate_rate=rate("duplicate", 0.1),
        tail_rate=rate("tail", 0.2),
        tail_ms=draws.pick((20, 60, 300), "tail_ms"),
        partitions=count("partitions", 2),
        crashes=count("crashes", 3),
        power_losses=count("power", 2),
        disk_errors=count("disk", 2),
        freezes=count("freeze", 2),
        collections=count("collect", 3),
        cas_lost_rate=rate("cas_lost", 0.4),
        cas_late_rate=rate("cas_late", 0.2),
        store_away_rate=rate("store_away", 0.3),
    )
