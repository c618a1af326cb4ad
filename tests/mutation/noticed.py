"""The command that last detected each mutation. It runs first, so most verdicts take a second.

The file has one line of JSON for each mutation, by name. A line is only a guess: if its command
passes, the whole suite runs. If a line names a test and this test fails, the simulators do not run,
so the count of mistakes that the simulators detect is a lower bound.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutation import SIMULATORS, Mutation

FILE = Path(__file__).parent / "noticed.jsonl"
_SEED = re.compile(r"\bseed (\d+)[,:]")
_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Guess:
    """The command that probably detects a mutation.

    Attributes:
        by: The simulator, or TESTS.
        command: The arguments of `python -m`.
    """

    by: str
    command: tuple[str, ...]


def narrowed(command: tuple[str, ...], output: str) -> tuple[str, ...]:
    """The part of a command that failed, according to its output; otherwise the whole command."""
    if command[0] == "pytest":
        failed = _TEST.findall(output)
        options = [word for word in command if word not in tests_of(command)]
        return (*options, failed[0]) if failed else command
    seeds = _SEED.findall(output)
    if not seeds:
        return command
    options = list(command)
    options[options.index("--seed") + 1] = seeds[-1]
    options[options.index("--schedules") + 1] = "1"
    return tuple(options)


def tests_of(command: tuple[str, ...]) -> list[str]:
    """The tests that a run of pytest names."""
    return [word for word in command if word.startswith("tests/")]


class Guesses:
    """The lines of the file for mutations that have not changed."""

    def __init__(self, file: Path = FILE) -> None:
        """Read the file, if it exists."""
        self._file = file
        self._lines = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for line in map(json.loads, lines):
            known = found.get(line["name"])
            if known is None or known["by"] not in SIMULATORS:
                found[line["name"]] = line
        return found

    def of(self, mutation: Mutation) -> Guess | None:
        """The command to run first; None if none is known, or if the mutation has changed."""
        line = self._lines.get(mutation.name)
        if line is None or line["mutation"] != _hash_of(mutation):
            return None
        return Guess(line["by"], tuple(line["command"]))

    def put(self, mutation: Mutation, guess: Guess | None) -> None:
        """Store a guess for the next run, or None, and write the whole file.

        The file keeps lines that other runs have written in the meantime, because a run takes an
        hour.
        """
        self._lines = self._read()
        self._lines.pop(mutation.name, None)
        if guess is not None:
            self._lines[mutation.name] = {
                "name": mutation.name,
                "mutation": _hash_of(mutation),
                "by": guess.by,
                "command": list(guess.command),
            }
        lines = (json.dumps(self._lines[name]) for name in sorted(self._lines))
        self._file.write_text("".join(f"{line}\n" for line in lines))


def _hash_of(mutation: Mutation) -> str:
    said = repr((mutation.file, mutation.old, mutation.new))
    return hashlib.sha256(said.encode()).hexdigest()[:12]
