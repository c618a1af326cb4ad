"""`python -m tests.limbo_test --losses 3 --seed 1`.

Four bookies serve writers, readers and recoverers. Three of them lose entries, one after the other:
an unjournaled bookie loses power, a directory is wiped, and a directory is replaced by an older
copy. After each loss, the repair of the bookie must end. At the end, each entry is read from each
bookie that must have it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from benchmarks.options import positive
from ledgerlog_spark.errors import LedgerLogError
from tests.fixtures.bookie_process import MEBIBYTE
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies, answers, stored_on
from tests.fixtures.stage import Stage
from tests.kill_test.payload import payload
from tests.limbo_test.loads import Loads, Tally, seal
from tests.limbo_test.losses import LOSSES, keep_a_copy, restore_yesterday

if TYPE_CHECKING:
    from tests.fixtures.bookie_process import BookieProcess

BOOKIES = 4
LEDGERS_BETWEEN = 60
"""Number of ledgers that are written before each loss."""
WHOLE_SECONDS_MAX = 300.0


def settings_of(number: int) -> dict[str, Any]:
    """The settings of a bookie. The first bookie loses power, so it does not sync before."""
    mode = {"write_mode": "unjournaled", "checkpoint_interval_ms": 600_000} if not number else {}
    return {
        "file_size_bytes": 8 * MEBIBYTE,
        "metrics_port": free_port(),
        "repair_idle_ms": 2_000,
        "repair_stuck_ms": 2_000,
        "disk_usage_max": 1,
        **mode,
    }


def repair_of(bookie: BookieProcess) -> dict[str, Any]:
    """The progress of the repair of a bookie."""
    url = f"http://127.0.0.1:{bookie.settings['metrics_port']}/api/v1/bookie/repair"
    with urllib.request.urlopen(url, timeout=30) as answer:
        shown: dict[str, Any] = json.load(answer)
        return shown


def is_whole(bookie: BookieProcess) -> bool:
    """Whether the doubt about a bookie has ended, and none of its ledgers is in limbo."""
    shown = repair_of(bookie)
    is_over = shown["doubt"]["epoch"] and shown["doubt"]["isOver"]
    return bool(is_over and shown["repairState"] == "nothing to do")


def run(losses: int, seed: int, directory: Path) -> int:
    """Play the losses, and return the exit code."""
    tally, dice, slowest = Tally(), random.Random(seed), 0.0
    closed: dict[str, set[int]] = {}
    with ExitStack() as stack:
        stage = Stage(directory, stack, BOOKIES, settings_of)
        loads = Loads(stage.uri, tally, seed)
        loads.start()
        stack.callback(loads.stop)
        for number in range(losses):
            name, lose = list(LOSSES.items())[number % len(LOSSES)]
            bookie = stage.bookies[name]
            if lose is restore_yesterday:
                keep_a_copy(bookie)
            wait_for_ledgers(tally)
            closed[name] = tally.closed_ids()
            print(f"{name}: {lose(bookie, dice)}", flush=True)
            began = time.monotonic()
            until(lambda one=bookie: is_whole(one), seconds=WHOLE_SECONDS_MAX)  # type: ignore[misc]
            seconds = time.monotonic() - began
            slowest = max(slowest, seconds)
            shown = repair_of(bookie)
            print(f"  whole after {seconds:.0f} s, {shown['entriesFetched']} entries fetched")
        loads.stop()
        not_whole = check(stage, tally, closed)
    for sentence in tally.broken:
        print(f"broken: {sentence}")
    print(
        f"{losses} losses, {len(tally.ledgers):,} ledgers, {tally.reads:,} reads, "
        f"{tally.lost} lost, {tally.wrongly_absent} wrongly absent, {not_whole} copies missing, "
        f"whole after {slowest:.0f} s"
    )
    return int(bool(tally.lost or tally.wrongly_absent or not_whole or tally.broken))


def wait_for_ledgers(tally: Tally) -> None:
    """Wait until some more ledgers are written."""
    wanted = len(tally.ledgers) + LEDGERS_BETWEEN
    until(lambda: len(tally.ledgers) >= wanted, seconds=WHOLE_SECONDS_MAX)


def check(stage: Stage, tally: Tally, closed: dict[str, set[int]]) -> int:
    """Close all ledgers, and read each copy.

    Return the number of copies that a bookie lacks although its repair had to fetch them: those of
    ledgers that were closed before its loss.
    """
    copies, not_whole = Copies(), 0
    with ll.connect(stage.uri) as client:
        for written in tally.ledgers.values():

            def is_sealed(one: Any = written) -> bool:
                try:
                    seal(client, one, tally)
                except LedgerLogError:
                    return False
                return True

            until(is_sealed, seconds=WHOLE_SECONDS_MAX)
        for bookie in (stage.bookies[name] for name in closed):
            until(lambda one=bookie: is_whole(one), seconds=WHOLE_SECONDS_MAX)  # type: ignore[misc]
        for ledger_id in tally.ledgers:
            metadata = client.ledger_metadata(ledger_id)
            copies.check(
                ledger_id,
                metadata,
                stage.bookies,
                lambda entry_id, seed=ledger_id: payload(seed, entry_id),  # type: ignore[misc]
            )
            for name, ids in stored_on(metadata):
                if ledger_id in closed.get(name, ()):
                    found = answers(stage.bookies[name], ledger_id, ids)
                    not_whole += sum(answer.code.is_absent for answer in found)
    for sentence in copies.broken:
        tally.find(sentence)
    print(f"{copies.entries:,} entries, {copies.read:,} copies read, {copies.absent:,} absent")
    return not_whole


def main() -> int:
    """Return 0 if nothing was lost, and each bookie is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", type=positive, default=len(LOSSES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        return run(chosen.losses, chosen.seed, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-limbo-") as directory:
        return run(chosen.losses, chosen.seed, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
