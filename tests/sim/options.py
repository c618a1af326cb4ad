"""The options of one schedule: sizes, workload, and the enabled faults."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledgerlog_spark.model import Quorum
from tests.sim.draws import Draws

LEDGER = 7
"""The ledger that every schedule has."""
IMPATIENT_MS = 15
"""With time limits up to this, an ordinary answer may be late."""

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
    """The options of one schedule. Times are virtual milliseconds; rates are per message.

    Attributes:
        span_ms: Approximate duration of the workload. Faults happen in this time.
        streams: Number of applications that each write one ledger after the other.
        roll_entries: Number of entries after which a stream begins another ledger.
        restarts: How often a stream whose writer died seals its ledger and begins another ledger.
        floor: The floor that recoveries get: None, "confirmed" for the confirmed end, or "beyond"
            for a floor after the last entry.
        faults_max: Maximum number of random faults.
        away_max: Maximum number of bookies that are down at a time.
        entry_size_bytes: Minimum size of a payload.
        read_frames: Number of frames that a reader may hold; None for the limit of the client.
        old_record_rate: Part of the readers that have only the first record and the confirmed end.
        delete_closed_rate: Part of the ledgers that are deleted at the moment of their close.
        write_back_crash_rate: Part of the written-back entries at which the bookie dies.
        change_crash_rate: Part of the ensemble changes after which the writer dies.
        late_add_rate: Part of the replaced bookies that get earlier adds again, twice.
        overload_attempts: Number of attempts of a reader that gets answers only from busy bookies.
        refused_read_rate: Part of the single reads that a bookie refuses because it is busy.
        recovery_buffered_entries: Maximum number of entries that wait to be written back; None for
            the limit of the client.
        cuts: Number of times that a writer is cut off from its ensemble or from all bookies.
        absences: Number of bookies that are away for longer than writers retry.
        false_losses: Number of bookies that count as lost, but run.
    """

    quorum: Quorum = QUORUMS[0]
    bookies: int = 5
    entries: int = 12
    run_entries_max: int = 1
    window_entries: int = 4
    gap_ms: int = 2
    entry_size_bytes: int = 0
    span_ms: int = 60
    streams: int = 1
    roll_entries: int | None = None
    restarts: int = 0
    ending: str = "close"
    ending_at_ms: int = 40
    recoverers: int = 1
    recoverers_from_ms: int = 5
    recoverers_to_ms: int = 60
    recover_when_stored: int | None = None
    floor: str | None = None
    readers: int = 1
    read_batch_entries: int = 5
    read_ahead_entries: int = 16_384
    read_pause_us: int = 0
    read_frames: int | None = None
    overload_attempts: int = 20
    refused_read_rate: float = 0.0
    old_record_rate: float = 0.0
    announcements: int = 0
    delete_at_ms: int | None = None
    delete_closed_rate: float = 0.0
    rpc_timeout_ms: int = 40
    hedge_ms: int = 15
    recovery_batch_entries: int = 1
    recovery_buffered_entries: int | None = None
    ensemble_changes_max: int = 1_000
    add_quorum_timeout_ms: int | None = None
    metadata_attempts_max: int = 12
    session_ms: int = 0
    pieces_max: int = 100_000
    faults_max: int = 1 << 30
    away_max: int = 100
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    tail_rate: float = 0.0
    tail_ms: int = 60
    busy_rate: float = 0.0
    garble_rate: float = 0.0
    unreadable_rate: float = 0.0
    wrong_passwords: int = 0
    answer_crash_rate: float = 0.0
    boot_crash_rate: float = 0.0
    write_back_crash_rate: float = 0.0
    change_crash_rate: float = 0.0
    late_add_rate: float = 0.0
    cuts: int = 0
    absences: int = 0
    false_losses: int = 0
    partitions: int = 0
    resets: int = 0
    crashes: int = 0
    power_losses: int = 0
    torn_writes: int = 0
    clean_restarts: int = 0
    disk_errors: int = 0
    full_disks: int = 0
    slow_disks: int = 0
    rots: int = 0
    freezes: int = 0
    collections: int = 0
    cas_lost_rate: float = 0.0
    cas_late_rate: float = 0.0
    store_away_rate: float = 0.0
    horizon_ms: int = 400
    directories: int = 1


def drawn(draws: Draws) -> Options:
    """Return the options of a seed. Each kind of fault is enabled in some seeds only."""
    tight = draws.uniform("tight") < 0.2
    return _with_faults(_workload(draws, tight=tight), draws, tight=tight)


def _workload(draws: Draws, *, tight: bool) -> Options:
    """Return sizes and actions of clients. A tight schedule is short, with all actions at once."""
    quorum = draws.pick(QUORUMS, "quorum")
    low, high = draws.pick(((8, 40), (40, 90), (50, 110), (80, 200)), "size")
    entries = draws.integer(1, 14, "entries") if tight else draws.integer(low, high, "entries")
    run_entries = draws.pick((1, 1, 2, 5), "run_entries")
    window = draws.pick((1, 3, 8, 64), "window")
    gap_ms = draws.pick((0, 1, 3) if entries > 14 else (0, 1, 3, 10), "gap")
    pace_ms = max(gap_ms, 2.5 / min(8, window), 0.3)
    refused_read_rate = draws.pick((0.0, 0.0, 0.0, 0.5), "refused")
    deletes_closed = draws.uniform("deleted when closed") < 0.05
    span_ms = max(30, int(entries * 2 / (1 + run_entries) * pace_ms))
    return Options(
        quorum=quorum,
        bookies=quorum.ensemble_size + draws.integer(0, 2, "spares"),
        entries=entries,
        run_entries_max=run_entries,
        window_entries=window,
        gap_ms=gap_ms,
        entry_size_bytes=draws.pick((0, 0, 0, 300, 3_000), "entry size"),
        span_ms=span_ms,
        streams=draws.pick((1, 1, 1, 2), "streams"),
        roll_entries=draws.pick((None, None, 15, 40), "roll"),
        restarts=draws.pick((1, 2, 2, 3), "restarts"),
        ending=draws.pick(("close", "close", "close", "close_early", "crash", "abandon"), "ending"),
        ending_at_ms=draws.integer(1, 30 if tight else span_ms, "ending_at"),
        recoverers=draws.pick((0, 1, 1, 2, 3) if tight else (0, 0, 1, 1, 2), "recoverers"),
        recoverers_from_ms=0 if tight else span_ms // 2,
        recoverers_to_ms=20 if tight else span_ms * 3 // 2,
        recover_when_stored=draws.pick(
            (None, None, 0, 1, 3) if tight else (None, None, None, entries // 2), "when stored"
        ),
        floor=draws.pick((None, None, None, "confirmed", "confirmed", "beyond"), "floor"),
        readers=draws.pick((0, 1, 2, 4), "readers") if not refused_read_rate else 4,
        read_batch_entries=draws.pick((1, 5, 64), "read batch") if not refused_read_rate else 1,
        refused_read_rate=refused_read_rate,
        read_ahead_entries=draws.pick((4, 16_384), "read ahead"),
        read_pause_us=draws.pick((0, 0, 3_000), "read pause"),
        read_frames=draws.pick((None, None, 3, 4), "read frames"),
        old_record_rate=draws.pick((0.0, 0.5), "old records"),
        overload_attempts=draws.pick((2, 2, 3, 4), "overload attempts"),
        announcements=draws.pick((0, 0, 2, 5), "announcements"),
        delete_at_ms=span_ms if draws.uniform("deleted") < 0.05 else None,
        delete_closed_rate=0.5 if deletes_closed else 0.0,
        rpc_timeout_ms=draws.pick((10, 40, 40, 120), "timeout"),
        recovery_batch_entries=draws.pick((1, 2, 5, 64), "recovery batch"),
        recovery_buffered_entries=draws.pick((None, None, 1, 4), "recovery buffered"),
        ensemble_changes_max=draws.pick((1_000,) * 9 + (1, 3), "changes max"),
        add_quorum_timeout_ms=draws.pick((None, None, None, None, 60, 200), "quorum timer"),
        metadata_attempts_max=draws.pick((3, 12, 12), "metadata attempts"),
        session_ms=draws.pick((0, 20, 100), "session"),
        horizon_ms=400 + 4 * span_ms,
        directories=draws.pick((1, 1, 2), "directories"),
    )


def _with_faults(options: Options, draws: Draws, *, tight: bool) -> Options:
    """Return the same schedule with the faults of a seed, twice as many in a heavy one."""
    heavy = draws.uniform("heavy") < 0.3

    def rate(kind: str, most: float, chance: float = 0.5) -> float:
        if draws.uniform("swarm", kind) >= chance:
            return 0.0
        return most * draws.uniform("rate", kind) * (2.0 if heavy else 1.0)

    def count(kind: str, most: int, chance: float = 0.4) -> int:
        if draws.uniform("swarm", kind) >= chance:
            return 0
        return draws.integer(1, most, "count", kind)

    return replace(
        options,
        pieces_max=draws.pick((8, 30, 100_000), "pieces"),
        faults_max=draws.pick((5, 15, 40, 1 << 30 if tight else 40), "faults max"),
        away_max=100 if heavy else 1,
        drop_rate=rate("drop", 0.12 if tight else 0.03),
        duplicate_rate=rate("duplicate", 0.1),
        tail_rate=rate("tail", 0.2 if tight else 0.05),
        tail_ms=draws.pick((20, 60, 300), "tail_ms"),
        busy_rate=rate("busy", 0.03, 0.25),
        garble_rate=rate("garble", 0.05, 0.2),
        unreadable_rate=rate("unreadable", 0.1, 0.05),
        wrong_passwords=1 if draws.uniform("wrong password") < 0.05 else 0,
        answer_crash_rate=rate("answer crash", 0.02, 0.3),
        boot_crash_rate=rate("boot crash", 0.4, 0.3),
        write_back_crash_rate=rate("write back crash", 0.3, 0.2),
        change_crash_rate=rate("change crash", 0.5, 0.2),
        late_add_rate=rate("late add", 1.0, 0.5),
        cuts=count("cuts", 2, 0.2),
        absences=count("absences", 3, 0.35),
        false_losses=count("false losses", 2, 0.2),
        partitions=count("partitions", 2),
        resets=count("resets", 4),
        crashes=count("crashes", 4, 0.5),
        power_losses=count("power", 3, 0.5),
        torn_writes=count("torn", 2, 0.2),
        clean_restarts=count("clean", 3, 0.3),
        disk_errors=count("disk", 2, 0.3),
        full_disks=count("full", 2, 0.2),
        slow_disks=count("slow", 2, 0.2),
        rots=1 if draws.uniform("swarm", "rot") < 0.15 else 0,
        freezes=count("freeze", 2),
        collections=count("collect", 3),
        cas_lost_rate=0.5 if options.delete_closed_rate else rate("cas_lost", 0.4),
        cas_late_rate=rate("cas_late", 0.2),
        store_away_rate=rate("store_away", 0.3),
    )
