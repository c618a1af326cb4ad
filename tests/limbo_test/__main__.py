"""`python -m tests.limbo_test --ledgers 1200 --seed 1`.

A cluster of five bookies works under load. One bookie after the other loses something. After each
loss, the test asks the bookie for every entry that it held before. The bookie must never deny that
one of them exists, and must have all of them again after a while. At the end, every ledger is
closed, and all copies are read.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import ledgerlog_spark as ll
from benchmarks.options import positive
from tests.fixtures.bookie_process import MEBIBYTE, BookieProcess
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import Stage
from tests.kill_test.payload import payload
from tests.limbo_test.held import (
    PAUSE_SECONDS,
    WHOLE_SECONDS_MAX,
    Held,
    Recovered,
    wait_until_whole,
)
from tests.limbo_test.load import Load
from tests.limbo_test.losses import LOSSES, Loss
from tests.limbo_test.power import kill_traced, trace
from tests.limbo_test.together import NEW_LEDGERS, OLD_LEDGERS, Together, lose_power_together

BOOKIES = 5
UNSYNCED_LEDGERS = 30
LOSING_TOGETHER = 3
SECOND = "second directory"
SETTINGS = {
    "file_size_bytes": 8 * MEBIBYTE,
    "free_bytes_min": 0,
    "disk_usage_max": 1,
    "change_interval_ms": 1_000,
    "gc_interval_ms": 5_000,
    "admin_changes": True,
}


def before_start(bookie: BookieProcess) -> None:
    """Trace the unjournaled bookie from its first start on, and give one a second directory."""
    if SECOND in bookie.settings:
        bookie.settings["directory"] = bookie.settings.pop(SECOND)
    if bookie.settings.get("write_mode") == "unjournaled":
        trace(bookie)


def end_traced(stage: Stage) -> None:
    """End a bookie that is still traced. The end of its strace would let it run on."""
    for bookie in stage.bookies.values():
        if bookie.launcher and bookie.process is not None and bookie.process.poll() is None:
            kill_traced(bookie)


def settings_of(directory: Path, number: int) -> dict[str, object]:
    """The settings of a bookie."""
    settings: dict[str, object] = {**SETTINGS, "metrics_port": free_port()}
    if number == 0:
        return settings | {"write_mode": "unjournaled", "checkpoint_interval_ms": 60_000}
    if number == 1:
        journal = directory / "journal-1"
        journal.mkdir()
        return settings | {
            "write_mode": "journal",
            "journal_directory": journal,
            "journal_files": 2,
        }
    if number == BOOKIES - 1:
        return settings | {SECOND: directory / "second-disk"}
    return settings


def play(loss: Loss, stage: Stage, load: Load, ledgers: int, random: Random) -> Recovered:
    """Let a bookie lose something under load, and wait until it is whole."""
    name, bookie = list(stage.bookies.items())[loss.bookie]
    loss.before(bookie)
    load.wait_for_ledgers(len(load.closed()) + ledgers)
    load.pause()
    held = Held(name, bookie)
    with ll.connect(stage.uri) as client:
        before = load.closed()
        held.take(client, before)
        load.write_unsynced(UNSYNCED_LEDGERS)
        held.take(client, set(load.closed()).difference(before))
    loss.lose(bookie, random)
    load.resume()
    recovered = wait_until_whole(held)
    print(
        f"{loss.name}: {recovered.entries:,} entries before, {recovered.fetched:,} fetched, "
        f"{recovered.absent} wrongly absent, whole after {recovered.seconds:.1f} s",
        flush=True,
    )
    return recovered


def run(ledgers: int, seed: int, directory: Path) -> int:
    """Play all losses, and return the exit code."""
    random = Random(seed)
    with ExitStack() as stack:
        stage = Stage(
            directory, stack, BOOKIES, lambda number: settings_of(directory, number), before_start
        )
        stack.callback(end_traced, stage)
        load = Load(stage.uri, seed)
        load.start()
        try:
            count = ledgers // len(LOSSES)
            recovered = [play(loss, stage, load, count, random) for loss in LOSSES]
        finally:
            load.stop()
        load.check_log()
        copies = whole_copies(stage, load.closed())
    together = run_together(seed, directory / "together")
    return report(load, recovered, together, copies)


def whole_copies(stage: Stage, ledger_ids: list[int]) -> Copies:
    """Read each copy of each ledger, again and again until no answer is unknown.

    A ledger that was open during a repair is repaired again after it is closed.
    """
    deadline = time.monotonic() + WHOLE_SECONDS_MAX
    while True:
        copies = Copies()
        with ll.connect(stage.uri) as client:
            for ledger_id in ledger_ids:
                metadata = client.ledger_metadata(ledger_id)
                copies.check(
                    ledger_id,
                    metadata,
                    stage.bookies,
                    lambda entry_id, ledger_id=ledger_id: payload(ledger_id, entry_id),  # type: ignore[misc]
                )
        if not copies.wrong or time.monotonic() > deadline:
            return copies
        time.sleep(PAUSE_SECONDS)


def run_together(seed: int, directory: Path) -> Together:
    """Let three of five bookies lose power at the same time."""
    names = itertools.count()

    def settings(_number: int) -> dict[str, object]:
        is_losing = next(names) < LOSING_TOGETHER
        mode = "unjournaled" if is_losing else "direct"
        return {**SETTINGS, "metrics_port": free_port(), "write_mode": mode}

    directory.mkdir(exist_ok=True)
    with ExitStack() as stack:
        stage = Stage(directory, stack, BOOKIES, settings, before_start)
        stack.callback(end_traced, stage)
        bookies = list(stage.bookies.values())
        found = lose_power_together(stage, bookies[:LOSING_TOGETHER], Random(seed))
    closed = max(found.closed_seconds, default=0.0)
    print(
        f"three bookies lose power together: {NEW_LEDGERS} new ledgers, each closed after at most "
        f"{found.new_seconds:.2f} s; {len(found.closed_seconds)} of {OLD_LEDGERS} open ledgers "
        f"closed after at most {closed:.1f} s, {found.lost} entries lost",
        flush=True,
    )
    return found


def report(load: Load, recovered: list[Recovered], together: Together, copies: Copies) -> int:
    """Print the findings, and return the exit code."""
    findings = load.findings
    sentences = [*findings.broken, *copies.broken, *(s for one in recovered for s in one.broken)]
    for sentence in sentences:
        print(f"broken: {sentence}")
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(findings.counts.items()))
    print(f"{counts}; {len(load.led):,} records of a leader")
    print(f"{copies.entries:,} entries, {copies.read:,} copies read, {copies.wrong} wrong")
    absent = sum(one.absent for one in recovered)
    wrong = findings.invented + findings.wrong + findings.unclosed + copies.wrong
    lost = findings.lost + together.lost
    seconds = max(one.seconds for one in recovered)
    print(
        f"{len(recovered)} losses, {len(load.ledgers):,} ledgers, {lost} lost, "
        f"{absent} wrongly absent, {wrong} wrong, whole after {seconds:.0f} s"
    )
    if not all(one.fetched for one in recovered):
        print("broken: a loss took nothing that the bookie had to fetch")
        wrong += 1
    is_right = not (lost or absent or wrong) and seconds < float("inf")
    return 0 if is_right else 1


def main() -> int:
    """Return 0 if nothing was lost or denied, and each bookie became whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=positive, default=1_200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        return run(chosen.ledgers, chosen.seed, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-limbo-") as directory:
        return run(chosen.ledgers, chosen.seed, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
