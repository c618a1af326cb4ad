"""Runs the suites on a copy of the tree that has one mistake."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation.mutation import ROOT, SIMULATORS, Mutation, pytest_of, suite_of
from tests.mutation.noticed import Guess, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutation.results import Kept

COPIED = (
    "ledgerlog_spark",
    "bookie_server",
    "tests",
    "benchmarks",
    "pyproject.toml",
    "pyspark_ledger.py",
    "docs",
)
TESTS = "tests"
HANG_FACTOR = 4
"""A command counts as hanging if it takes this many times as long as without a mistake."""
SECONDS_MIN = 30.0
SECONDS_OF_GUESS_MAX = 90.0
HUNG = -1
NO_SUCH_TEST = 4
NO_TESTS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The command that detected a mutation, if any.

    Attributes:
        by: The simulator, or TESTS; None if no command detected the mutation.
        how: The last words of its output.
        seconds: The duration.
        command: The failed command, as narrow as its output allows.
    """

    mutation: Mutation
    by: str | None
    how: str
    seconds: float
    command: tuple[str, ...] = ()

    @property
    def by_simulator(self) -> bool:
        return self.by in SIMULATORS


def commands_of(mutation: Mutation) -> list[tuple[str, tuple[str, ...]]]:
    """The commands for a mutation, each with its name, in order."""
    suite = suite_of(mutation)
    simulators = [(name, SIMULATORS[name]) for name in suite.simulators]
    return [*simulators, *((TESTS, pytest_of(*group)) for group in suite.tests)]


class Workspace:
    """A copy of the tree, in which one command runs at a time."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        self.directory = directory
        self._limits = limits
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                # Compiled modules are copied, because compiling the tests takes most of the time of
                # a collection. Other processes may be writing some, which get their names at the
                # end.
                skipped = shutil.ignore_patterns("*.pyc.*", "*.jar")
                shutil.copytree(source, directory / name, ignore=skipped)
            else:
                shutil.copy2(source, directory / name)
        # Some tests read the list of tracked files.
        for command in (["init", "--quiet"], ["add", ".", ":(exclude)*.pyc"]):
            subprocess.run(["git", *command], cwd=directory, check=True)

    def judge(self, mutation: Mutation, guess: Guess | None) -> Verdict:
        """Run the guess first, then simulators, then tests, until one of them fails."""
        assert self._limits is not None
        begun = time.monotonic()
        commands = commands_of(mutation)
        guessed = [(guess.by, guess.command)] if guess is not None else []
        with self._mistaken(mutation):
            for name, command in [*guessed, *commands]:
                is_whole = (name, command) in commands
                allowed = self._limits.of(command) if is_whole else SECONDS_OF_GUESS_MAX
                code, output = self._run(command, allowed)
                if code == NO_SUCH_TEST and command[0] == "pytest":
                    continue  # the guessed test has another name now
                if code != 0:
                    seconds = time.monotonic() - begun
                    narrow = narrowed(command, output)
                    return Verdict(mutation, name, _last_words(output), seconds, narrow)
        return Verdict(mutation, None, "", time.monotonic() - begun)

    def play(
        self, mutation: Mutation, command: tuple[str, ...], allowed_seconds: float
    ) -> tuple[int, str]:
        """Run one command with a mistake; return its exit code and its output."""
        with self._mistaken(mutation):
            return self._run(command, allowed_seconds)

    def failure(self, command: tuple[str, ...]) -> str:
        """Why a command fails on the unchanged tree, in a few words; empty if it passes."""
        code, output = self._run(command, 600.0)
        return "" if code == 0 else _last_words(output)

    def _run(self, command: tuple[str, ...], allowed_seconds: float) -> tuple[int, str]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.directory,
            env=os.environ | {"PYTHONPATH": str(self.directory), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=allowed_seconds)
        except subprocess.TimeoutExpired:
            return HUNG, f"it did not end within {allowed_seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode != NO_TESTS, output
        return process.returncode, output

    @contextlib.contextmanager
    def _mistaken(self, mutation: Mutation) -> Iterator[None]:
        path = self.directory / mutation.file
        right = path.read_text()
        path.write_text(mutation.applied(right))
        try:
            yield
        finally:
            path.write_text(right)


class Limits:
    """How long each command may take: a multiple of its time without a mistake.

    A command runs without a mistake when its limit is needed first.
    """

    def __init__(self, directory: Path, kept: Kept) -> None:
        self._directory = directory
        self._kept = kept
        self._workspace: Workspace | None = None
        self._lock = threading.Lock()

    def of(self, command: tuple[str, ...]) -> float:
        """The limit of a command in seconds.

        Raises:
            AssertionError: The command fails on the tree as it is.
        """
        said = " ".join(command)
        with self._lock:
            took = self._kept.get(said)
            if took is None:
                if self._workspace is None:
                    self._workspace = Workspace(self._directory)
                begun = time.monotonic()
                failure = self._workspace.failure(command)
                assert not failure, f"{said} fails without any mutation: {failure}"
                took = {"seconds": round(time.monotonic() - begun, 1)}
                self._kept.put(said, **took)
                sys.stdout.write(f"  {took['seconds']:6.1f} s without a mutation: {said[:150]}\n")
                sys.stdout.flush()
        return max(SECONDS_MIN, HANG_FACTOR * float(took["seconds"]))


def _last_words(output: str) -> str:
    """The line that names the failed test or schedule."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "seed ", "E  "))]
    return (named or lines or ["it printed nothing"])[0][:160]
