"""The options of one schedule with losses."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ledgerlog_spark.model import Quorum
from tests.sim.draws import Draws
from tests.sim.options import Options, drawn

QUORUMS = (
    Quorum(3, 3, 2),
    Quorum(3, 3, 2),
    Quorum(3, 3, 2),
    Quorum(4, 3, 2),
    Quorum(3, 2, 2),
    Quorum(5, 3, 2),
    Quorum(2, 2, 2),
    Quorum(3, 3, 3),
    Quorum(4, 4, 3),
    Quorum(5, 4, 3),
)
WIDE_QUORUMS = (Quorum(3, 3, 3), Quorum(4, 4, 3), Quorum(5, 4, 3), Quorum(5, 5, 3), Quorum(4, 4, 4))
LIMITS = ("one", "quorum", "any")


@dataclass(frozen=True)
class LossOptions(Options):
    """The options of one schedule with losses.

    Attributes:
        limit: How many bookies may have lost records at the same time: "one", "quorum" for one less
            than an ack quorum, or "any". With "any", records may be lost for ever, but no answer
            may deny that an entry exists.
        weak_part: Part of the bookies that acknowledge before a sync.
        power_cuts, wipes, old_copies, lost_records, failed_syncs: Number of losses of each kind.
        absent_wipes: Number of bookies that come back with an empty directory after a long time.
        forced: Number of forced recoveries of closed ledgers.
        apache_part: Part of the recoveries that behave as Apache's client.
        workers: Number of workers that each move a member's entries of a fragment.
    """

    limit: str = "one"
    weak_part: float = 1.0
    power_cuts: int = 0
    wipes: int = 0
    old_copies: int = 0
    lost_records: int = 0
    failed_syncs: int = 0
    absent_wipes: int = 0
    forced: int = 0
    apache_part: float = 0.0
    workers: int = 0


def loss_options(base: Options, **changes: Any) -> LossOptions:
    """Return options like `base`, with losses."""
    same = {field.name: getattr(base, field.name) for field in fields(Options)}
    return LossOptions(**{**same, **changes})


def drawn_losses(draws: Draws, limit: str) -> LossOptions:
    """Return the options of a seed. The faults of disks are replaced by losses."""
    base = drawn(draws)

    def count(kind: str, most: int, chance: float) -> int:
        if draws.uniform("loses by", kind) >= chance:
            return 0
        return draws.integer(1, most, "losses", kind)

    quorum = draws.pick(WIDE_QUORUMS if limit == "quorum" else QUORUMS, "loss quorum")
    base = replace(
        base,
        quorum=quorum,
        bookies=quorum.ensemble_size + draws.integer(0, 2, "loss spares"),
        entries=min(base.entries, 60),
        span_ms=min(base.span_ms, 150),
        entry_size_bytes=0,
        recoverers=draws.pick((0, 1, 2, 3), "loss recoverers"),
        busy_rate=0.0,
        wrong_passwords=0,
        unreadable_rate=0.0,
        boot_crash_rate=0.0,
        write_back_crash_rate=0.0,
        power_losses=0,
        torn_writes=0,
        disk_errors=0,
        full_disks=0,
        slow_disks=0,
        rots=0,
        collections=0,
    )
    return loss_options(
        base,
        limit=limit,
        weak_part=draws.pick((1.0, 1.0, 0.6), "weak part"),
        power_cuts=count("power", 6, 0.8),
        wipes=count("wipe", 2, 0.35),
        old_copies=count("copy", 2, 0.35),
        lost_records=count("record", 2, 0.35),
        failed_syncs=count("sync", 2, 0.25),
        absent_wipes=count("absent wipe", 2, 0.3),
        forced=count("forced", 2, 0.4),
        apache_part=draws.pick((0.0, 0.0, 0.5, 1.0), "apache part"),
        workers=draws.pick((0, 0, 2, 5), "workers"),
    )
