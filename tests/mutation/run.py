"""Running the suites on a copy of the tree with one mistake in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation.mutation import ROOT, SIMULATORS, Mutation, pytest_of, suite_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutation.results import Kept

COPIED = (
    "ledgerlog_spark",
    "bookie_server",
    "tests",
    "pyproject.toml",
    "pyspark_ledger.py",
    "docs",
)
TESTS = "tests"
HANG_FACTOR = 4
"""How many times as long as without a mistake a command may take before it counts as hanging."""
SECONDS_MIN = 30.0
NO_TESTS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What noticed a mutation.

    Attributes:
        by: The simulator, or TESTS; None when nothing did.
        how: Its last words.
        seconds: That it took.
    """

    mutation: Mutation
    by: str | None
    how: str
    seconds: float

    @property
    def by_simulator(self) -> bool:
        return self.by in SIMULATORS


def commands_of(mutation: Mutation) -> list[tuple[str, tuple[str, ...]]]:
    """What is run for a mutation, each with its name, in order."""
    suite = suite_of(mutation)
    simulators = [(name, SIMULATORS[name]) for name in suite.simulators]
    return [*simulators, *((TESTS, pytest_of(*group)) for group in suite.tests)]


class Workspace:
    """A copy of the tree, in which one command runs at a time."""

    def __init__(self, directory: Path, allowed_seconds: dict[str, float]) -> None:
        self.directory = directory
        self._allowed_seconds = allowed_seconds
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", "*.jar")
                shutil.copytree(source, directory / name, ignore=skipped)
            else:
                shutil.copy2(source, directory / name)

    def judge(self, mutation: Mutation) -> Verdict:
        """Simulators first, then the tests, until one of them fails."""
        begun = time.monotonic()
        with self._mistaken(mutation):
            for name, command in commands_of(mutation):
                if how := self.failure(name, command):
                    return Verdict(mutation, name, how, time.monotonic() - begun)
        return Verdict(mutation, None, "", time.monotonic() - begun)

    def failure(self, name: str, command: tuple[str, ...]) -> str:
        """Why a command failed, in a few words; empty when it passed."""
        allowed = self._allowed_seconds.get(" ".join(command), 600.0)
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
            output, _ = process.communicate(timeout=allowed)
        except subprocess.TimeoutExpired:
            return f"{name} did not end within {allowed:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode != NO_TESTS, output
        return "" if process.returncode == 0 else _last_words(output)

    @contextlib.contextmanager
    def _mistaken(self, mutation: Mutation) -> Iterator[None]:
        path = self.directory / mutation.file
        right = path.read_text()
        path.write_text(mutation.applied(right))
        try:
            yield
        finally:
            path.write_text(right)


def allowed_seconds(
    directory: Path, commands: set[tuple[str, ...]], kept: Kept
) -> dict[str, float]:
    """How long each command may take; each of them passes without a mistake.

    Raises:
        AssertionError: One fails on the tree as it is.
    """
    workspace: Workspace | None = None
    allowed = {}
    for command in sorted(commands):
        said = " ".join(command)
        if (found := kept.get(said)) is None:
            workspace = workspace or Workspace(directory, {})
            begun = time.monotonic()
            failure = workspace.failure(command[0], command)
            assert not failure, f"{said} fails without any mutation: {failure}"
            found = {"seconds": round(time.monotonic() - begun, 1)}
            kept.put(said, **found)
            sys.stdout.write(f"  {found['seconds']:6.1f} s without a mutation: {said}\n")
            sys.stdout.flush()
        allowed[said] = max(SECONDS_MIN, HANG_FACTOR * found["seconds"])
    return allowed


def _last_words(output: str) -> str:
    """The line that names what failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "seed ", "E  "))]
    return (named or lines or ["it printed nothing"])[0][:160]
