"""`python -m tests.bookie_soak --seconds 600`: does a bookie keep its size?

Three real bookies, one in each write mode, on a real ZooKeeper. Ledgers are written and deleted
beside a small leader log that stays. So almost every file has a live entry, and only compaction
frees space. Time runs 20 times faster: intervals of the settings are divided by 20, and those of
compaction by more.

The exit code is 1 in four cases: after the warm-up, the peaks of a bookie's disk use, resident
memory, descriptors or number of files rise; a call fails; nothing was compacted; or a bookie of an
entry does not have the entry at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from rich.progress import track

from benchmarks.options import positive
from bookie_server.config import BookieSettings
from tests.abuse.loop_lags import samples_of
from tests.bookie_soak.levels import Level, Limit, Sample, level_of
from tests.bookie_soak.load import KeptLog, Ledgers
from tests.fixtures.bookie_process import MEBIBYTE, BookieProcess
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage, files_of, used_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = ("direct", "journal", "unjournaled")
SCALE = 20
SECONDS_MIN = 300
WARM_UP_PART = 0.1
SCALED = ("gc_interval_ms", "checkpoint_interval_ms", "disk_check_interval_ms")
COMPACTION = {"compaction_minor_interval_ms": 60_000, "compaction_major_interval_ms": 120_000}
"""They stand for an hour and a day. Divided by 20, 10 minutes would have three minor compactions
and no major one, but the rule for levels needs several whole periods in each half of the time."""
FILE_SIZE_BYTES = 16 * MEBIBYTE
LIMITS: Final = {
    "disk": Limit(part=0.1, amount=2 * FILE_SIZE_BYTES),
    "RSS": Limit(part=0.1),
    "descriptors": Limit(part=0.1, amount=2),
    "files": Limit(part=0.1, amount=2),
}
"""The allowed growth of the peaks in the second half (see `tests/bookie_soak/levels.py`)."""
COMPACTED = "ledgerlog_bookie_storage_compactions"
FREED = "bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES"


def settings_of(directory: Path, number: int) -> dict[str, Any]:
    """The settings of a bookie."""
    fields = BookieSettings.model_fields
    mode, journal = MODES[number], {}
    if mode == "journal":
        journal = {"journal_directory": journal_of(directory, f"bookie-{number}")}
        journal["journal_directory"].mkdir(parents=True)
    return {
        **{name: fields[name].default // SCALE for name in SCALED},
        **COMPACTION,
        "file_size_bytes": FILE_SIZE_BYTES,
        "disk_usage_max": 1,
        "session_timeout_ms": 10_000,
        "metrics_port": free_port(),
        "write_mode": mode,
        **journal,
    }


def journal_of(directory: Path, name: str) -> Path:
    """The journal directory of a bookie."""
    return directory / f"{name}.journal"


class Meter:
    """Measures the bookies.

    Attributes:
        samples: The samples, by bookie and quantity.
    """

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.began = time.monotonic()
        self._places = {
            name: (
                psutil.Process(bookie.process.pid),
                [bookie.directory, journal_of(directory, name)],
            )
            for name, bookie in stage.bookies.items()
            if bookie.process is not None
        }
        self.samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)

    def look(self) -> None:
        """Measure all quantities of all bookies."""
        for name, (process, directories) in self._places.items():
            seconds = time.monotonic() - self.began
            found = {
                "disk": used_bytes(*directories),
                "RSS": process.memory_info().rss,
                "descriptors": process.num_fds(),
                "files": sum(len(list(files_of(path))) for path in directories),
            }
            for quantity, value in found.items():
                self.samples[name, quantity].append(Sample(seconds, value))

    def levels(self, warm_up_seconds: float) -> dict[tuple[str, str], Level]:
        """The levels of all quantities, by bookie and quantity."""
        return {key: level_of(each, warm_up_seconds) for key, each in self.samples.items()}


def each_minute(samples: Sequence[Sample]) -> list[float]:
    """The peak of each minute."""
    peaks: dict[int, float] = defaultdict(float)
    for sample in samples:
        minute = int(sample.seconds // 60)
        peaks[minute] = max(peaks[minute], sample.value)
    return list(peaks.values())


def judge(levels: dict[tuple[str, str], Level], bookies: dict[str, BookieProcess]) -> list[str]:
    """Print each level, and return a sentence for each level that is not kept."""
    broken = []
    for (name, quantity), level in levels.items():
        is_size = quantity in ("disk", "RSS")
        first, second = (
            f"{value / MEBIBYTE:,.1f} MiB" if is_size else f"{value:,.0f}"
            for value in (level.first, level.second)
        )
        mode = bookies[name].settings["write_mode"]
        text = f"{name} ({mode}): {quantity} at most {first}, then {second}"
        print(text)
        if not level.keeps(LIMITS[quantity]):
            broken.append(text)
    return broken


def run(seconds: int, directory: Path) -> int:
    """Run the load, read everything, and return the exit code."""
    copies = Copies()
    with ExitStack() as stack:
        stage = Stage(directory, stack, len(MODES), lambda number: settings_of(directory, number))
        ledgers, kept = Ledgers(stage.uri), KeptLog(stage.uri)
        meter = Meter(stage, directory)
        with ledgers, kept:
            for second in track(range(seconds), description="soaking"):
                meter.look()
                time.sleep(max(0.0, meter.began + second + 1 - time.monotonic()))
        counters = [
            samples_of(int(str(bookie.settings["metrics_port"])))
            for bookie in stage.bookies.values()
        ]
        ledgers.check(stage, copies)
        kept.check(stage, copies)
        codes = [bookie.stop(signal.SIGTERM) for bookie in stage.bookies.values()]
    for name in stage.bookies:
        peaks = (f"{peak / MEBIBYTE:.0f}" for peak in each_minute(meter.samples[name, "RSS"]))
        print(f"{name}: RSS in each minute {' '.join(peaks)} MiB")
    levels = meter.levels(WARM_UP_PART * seconds)
    broken = judge(levels, stage.bookies)
    broken += [*ledgers.failures, *kept.failures, *copies.broken]
    compactions = [int(each[COMPACTED]) for each in counters]
    if not all(compactions):
        broken.append(f"the bookies compacted {compactions} times")
    if any(codes):
        broken.append(f"the bookies ended with {codes}")
    for reason in broken:
        print(f"broken: {reason}")
    print(summary(ledgers, kept, levels, copies, counters))
    return 1 if broken or copies.wrong else 0


def summary(
    ledgers: Ledgers,
    kept: KeptLog,
    levels: dict[tuple[str, str], Level],
    copies: Copies,
    counters: Sequence[dict[str, float]],
) -> str:
    """The last line."""
    growths = []
    for quantity in LIMITS:
        found = [level.growth_percent for (_, each), level in levels.items() if each == quantity]
        growths.append(f"{quantity} {max(found):+.1f} %")
    compactions = sum(int(each[COMPACTED]) for each in counters)
    freed = sum(each[FREED] for each in counters) / MEBIBYTE
    return (
        f"{ledgers.written:,} ledgers with {ledgers.size_bytes / MEBIBYTE:,.0f} MiB written, "
        f"{ledgers.deleted:,} deleted, {kept.appended:,} records kept, {compactions} compactions "
        f"freed {freed:,.0f} MiB; at most {', '.join(growths)}; {copies.entries:,} live entries, "
        f"{copies.read:,} copies read, {copies.absent} absent, {copies.wrong} wrong"
    )


def main() -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=positive, default=600)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.seconds < SECONDS_MIN:
        parser.error(f"compactions run each minute or two: measure for {SECONDS_MIN} seconds")
    if chosen.directory is not None:
        return run(chosen.seconds, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-soak-") as directory:
        return run(chosen.seconds, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
