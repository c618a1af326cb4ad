"""`make mutation-score`: how many of a list of plausible mistakes the suites notice."""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.mutation.lists import all_mutations
from tests.mutation.mutation import SIMULATORS, Mutation, suite_of
from tests.mutation.run import Verdict, Workspace, allowed_seconds, pytest_of

GOAL = 0.95
GOAL_OF_SIMULATORS = 0.75


def main() -> int:
    """Judge the mutations; the exit code is 1 below either goal."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="those whose name or file contains this")
    parser.add_argument("--list", action="store_true", help="print the list and end")
    options = parser.parse_args()
    chosen = [
        mutation
        for mutation in all_mutations()
        if not options.only or options.only in mutation.name or options.only in mutation.file
    ]
    if options.list:
        for mutation in chosen:
            print(f"{mutation.name:50} {mutation.file}: {mutation.reason}")
        return 0
    begun = time.monotonic()
    judged = [mutation for mutation in chosen if not mutation.equivalent]
    with tempfile.TemporaryDirectory(prefix="ledgerlog-mutations-") as directory:
        verdicts = _judged(judged, Path(directory), options.workers)
    return _report(verdicts, len(chosen) - len(judged), time.monotonic() - begun)


def _judged(mutations: list[Mutation], directory: Path, workers: int) -> list[Verdict]:
    commands = {SIMULATORS[name] for each in mutations for name in suite_of(each).simulators}
    commands |= {pytest_of(suite_of(each).tests) for each in mutations}
    allowed = allowed_seconds(directory / "right", commands)
    waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in mutations:
        waiting.put(mutation)
    verdicts: list[Verdict] = []

    def work(workspace: Workspace) -> None:
        while True:
            try:
                mutation = waiting.get_nowait()
            except queue.Empty:
                return
            verdict = workspace.judge(mutation)
            verdicts.append(verdict)
            told = f"caught by {verdict.by}" if verdict.by else "SURVIVED"
            print(
                f"{len(verdicts):4}/{len(mutations)} {verdict.seconds:6.1f} s  "
                f"{mutation.name}: {told}  {verdict.how}",
                flush=True,
            )

    threads = [
        threading.Thread(target=work, args=(Workspace(directory / str(number), allowed),))
        for number in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def _report(verdicts: list[Verdict], equivalents: int, seconds: float) -> int:
    survivors = [verdict.mutation for verdict in verdicts if verdict.by is None]
    for mutation in survivors:
        print(f"survived: {mutation.name} ({mutation.file}): {mutation.reason}")
    caught = len(verdicts) - len(survivors)
    by_simulators = sum(verdict.by_simulator for verdict in verdicts)
    print(
        f"{equivalents} equivalents left out, {seconds / 60:.0f} minutes\n"
        f"caught {caught} of {len(verdicts)} (simulator alone {by_simulators})"
    )
    is_reached = caught >= GOAL * len(verdicts) and by_simulators >= GOAL_OF_SIMULATORS * len(
        verdicts
    )
    return int(not is_reached)


if __name__ == "__main__":
    sys.exit(main())
