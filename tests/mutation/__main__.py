"""`make mutation-score`: how many of the listed mistakes the suites detect."""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.options import above_zero, positive
from tests.mutation.lists import all_mutations, part_of
from tests.mutation.mutation import SIMULATORS, Mutation, pytest_of
from tests.mutation.noticed import FILE, Guess, Guesses, tests_of
from tests.mutation.results import Kept, key_of
from tests.mutation.run import Limits, Verdict, Workspace

GOAL = 0.95


def main() -> int:
    """Judge the mutations. Return 1 below the goal, or if some mutations were not judged."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--only", help="those whose name or file contains one of these, by commas")
    parser.add_argument(
        "--part", type=part_of, default=(1, 1), help="2/5: the second of five parts of the list"
    )
    parser.add_argument("--minutes", type=above_zero, default=90, help="begin none after this")
    parser.add_argument("--results", type=Path, help="keep verdicts in this file")
    parser.add_argument("--resume", action="store_true", help="judge what is not in the file yet")
    parser.add_argument(
        "--learn", action="store_true", help=f"write what notices each to {FILE.name}"
    )
    parser.add_argument(
        "--afresh", action="store_true", help="simulators first, whatever that file says"
    )
    parser.add_argument("--list", action="store_true", help="print the list and end")
    options = parser.parse_args()
    part, parts = options.part
    chosen = [each for each in all_mutations() if _is_chosen(each, options.only)][part - 1 :: parts]
    if not chosen:
        parser.error(f"no mutation is chosen by --only {options.only} and --part {part}/{parts}")
    if options.list:
        for mutation in chosen:
            print(f"{mutation.name:50} {mutation.file}: {mutation.reason}")
        return 0
    begun = time.monotonic()
    judged = [mutation for mutation in chosen if not mutation.equivalent]
    kept = Kept(options.results, resumes=options.resume)
    verdicts, left = _known(judged, kept)
    guesses = Guesses()
    with tempfile.TemporaryDirectory(prefix="ledgerlog-mutations-") as directory:
        work = _Work(left, kept, guesses, options, Path(directory))
        verdicts += work.judged(begun + options.minutes * 60)
    seconds = time.monotonic() - begun
    left_out = len(chosen) - len(judged)
    return _report(verdicts, len(judged) - len(verdicts), left_out, seconds)


def _is_chosen(mutation: Mutation, only: str | None) -> bool:
    return not only or any(
        wanted in mutation.name or wanted in mutation.file for wanted in only.split(",")
    )


def _known(mutations: list[Mutation], kept: Kept) -> tuple[list[Verdict], list[Mutation]]:
    """The verdicts in the file for this tree, and the mutations without a verdict."""
    verdicts, left = [], []
    for mutation in mutations:
        said = kept.get(key_of(mutation))
        if said is None:
            left.append(mutation)
        else:
            verdicts.append(Verdict(mutation, said["by"], said["how"], said["seconds"]))
    return verdicts, left


class _Work:
    """The mutations that workers judge, each worker in a copy of the tree."""

    def __init__(
        self,
        mutations: list[Mutation],
        kept: Kept,
        guesses: Guesses,
        options: argparse.Namespace,
        directory: Path,
    ) -> None:
        self._count = len(mutations)
        self._waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
        for mutation in mutations:
            self._waiting.put(mutation)
        self._kept = kept
        self._guesses = guesses
        self._options = options
        self._directory = directory
        self._verdicts: list[Verdict] = []
        self._failures: list[AssertionError] = []  # commands that fail without a mistake
        self._lock = threading.Lock()
        self._limits = Limits(directory / "right", kept)
        guessed = {g for each in mutations if (g := self._guess(each)) and g.by not in SIMULATORS}
        tests = sorted({test for guess in guessed for test in tests_of(guess.command)})
        if tests:
            self._limits.of(pytest_of(*tests))  # all of them pass without a mistake

    def judged(self, ends_at: float) -> list[Verdict]:
        """The verdicts, when all mutations are judged or the time is over."""
        threads = [
            threading.Thread(target=self._work, args=(self._directory / str(number), ends_at))
            for number in range(min(self._options.workers, self._count))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]
        return self._verdicts

    def _guess(self, mutation: Mutation) -> Guess | None:
        return None if self._options.afresh else self._guesses.of(mutation)

    def _work(self, directory: Path, ends_at: float) -> None:
        workspace = Workspace(directory, self._limits)
        while time.monotonic() < ends_at and not self._failures:
            try:
                mutation = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                verdict = workspace.judge(mutation, self._guess(mutation))
            except AssertionError as error:
                self._failures.append(error)
                return
            with self._lock:
                self._judged(verdict)

    def _judged(self, verdict: Verdict) -> None:
        mutation, by = verdict.mutation, verdict.by
        seconds = round(verdict.seconds, 1)
        said = {"name": mutation.name, "by": by, "how": verdict.how, "seconds": seconds}
        self._kept.put(key_of(mutation), **said)
        if self._options.learn:
            self._guesses.put(mutation, Guess(by, verdict.command) if by else None)
        self._verdicts.append(verdict)
        told = f"caught by {by}" if by else "SURVIVED"
        place = f"{len(self._verdicts):4}/{self._count} {seconds:6.1f} s"
        print(f"{place}  {mutation.name}: {told}  {verdict.how}", flush=True)


def _report(verdicts: list[Verdict], unjudged: int, equivalents: int, seconds: float) -> int:
    """Print the result, and return the exit code."""
    survivors = [verdict.mutation for verdict in verdicts if verdict.by is None]
    for mutation in survivors:
        print(f"survived: {mutation.name} ({mutation.file}): {mutation.reason}")
    for verdict in verdicts:
        if verdict.by and not verdict.by_simulator:
            print(f"by tests alone: {verdict.mutation.name}: {verdict.how}")
    if unjudged:
        print(f"{unjudged} are not judged: go on with --results FILE --resume")
    caught = len(verdicts) - len(survivors)
    by_simulators = sum(verdict.by_simulator for verdict in verdicts)
    print(
        f"{equivalents} equivalents left out, {seconds / 60:.0f} minutes\n"
        f"caught {caught} of {len(verdicts)} (simulator alone {by_simulators})"
    )
    return int(caught < GOAL * len(verdicts) or bool(unjudged))


if __name__ == "__main__":
    sys.exit(main())
