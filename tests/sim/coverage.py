"""What random schedules reach: transitions, effects, codes, failures, lines of the shipped code.

Transitions are the rows of the dispatch tables, so a transition that no schedule reaches can be
named. Machines of logs have no table. For them, replies are counted by their subject and outcome. A
function is traced only until all its lines are reached, so a run takes about twice its time. For
everything that is not reached, there must be a new kind of schedule, or a reason in a list:
`unreached.py` of each simulator. A reason for something that is reached is also an error.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TextIO
from unittest import mock

import ledgerlog_spark.protocol as protocol_package
from ledgerlog_spark.protocol.dispatch import IGNORED, REFUSED, TableMachine, Unhandled
from ledgerlog_spark.protocol.log.machine import LogMachine

ROOT = Path(__file__).parents[2]


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions in a module's code, including nested functions, without class bodies."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_function = constant.co_flags & 0x02  # CO_NEWLOCALS, which a class body does not have
            if is_function and constant.co_name != "<lambda>":
                yield constant
            yield from functions_of(constant)


def lines_of(code: CodeType) -> set[int]:
    """The lines of a function that can be executed, without its first line."""
    return {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}


class Lines:
    """The lines of some source files that were reached."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        self._missing: dict[tuple[str, int, str], set[int]] = {}
        self._totals: dict[tuple[str, int, str], int] = {}
        self._names: dict[tuple[str, int, str], str] = {}
        self._roots = tuple(str(ROOT / prefix) for prefix in prefixes)
        for prefix in prefixes:
            path = ROOT / prefix
            for source in [path] if path.is_file() else sorted(path.rglob("*.py")):
                module = compile(source.read_text(), str(source), "exec")
                for code in functions_of(module):
                    key = self._key(code)
                    self._missing[key] = lines_of(code)
                    self._totals[key] = len(self._missing[key])
                    place = source.relative_to(ROOT)
                    self._names[key] = f"{place}:{code.co_qualname}"

    @staticmethod
    def _key(code: CodeType) -> tuple[str, int, str]:
        return code.co_filename, code.co_firstlineno, code.co_name

    def trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """A function for `sys.settrace`: traces a frame while its function has unreached lines."""
        code = frame.f_code
        if not code.co_filename.startswith(self._roots):
            return None
        missing = self._missing.get(self._key(code))
        if not missing:
            return None

        def follow(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                missing.discard(frame.f_lineno)
            return follow if missing else None

        return follow

    def add(self, other: Lines) -> None:
        """Add the lines that `other` reached. `other` must be of the same files."""
        for key, missing in self._missing.items():
            missing.intersection_update(other._missing[key])

    @property
    def reached(self) -> tuple[int, int]:
        """Return the number of reached lines, and the number of all lines."""
        missing = sum(map(len, self._missing.values()))
        total = sum(self._totals.values())
        return total - missing, total

    def unreached(self) -> dict[str, list[int]]:
        """Return the lines that were never reached, by `file:function`."""
        return {self._names[key]: sorted(lines) for key, lines in self._missing.items() if lines}


@dataclass(frozen=True)
class Wanted:
    """What the schedules of one simulator must reach.

    Attributes:
        files: Files and folders, relative to the repository, whose lines must be reached.
        reasons: Patterns of transitions, codes, failures and `file:function`, each with the reason
            why no schedule reaches them.
        tables: Names of dispatch tables whose transitions must be reached.
        codes: Codes and failures that must be reached.
        rare: Like `reasons`, but for what is reached only by one of thousands of schedules.
    """

    files: Sequence[str]
    reasons: Mapping[str, str]
    tables: Sequence[str] = ()
    codes: Sequence[str] = field(default=())
    rare: Mapping[str, str] = field(default_factory=dict)


class Coverage:
    """Counts of everything that the machines did while `watching`.

    Args:
        prefixes: Files and folders, relative to the repository, whose lines are traced.
    """

    def __init__(self, prefixes: Sequence[str] = ()) -> None:
        self.transitions: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.lines = Lines(prefixes)
        self._tables: dict[int, str] = {}
        self._entries: dict[str, Callable[..., list[Any]] | Unhandled] = {}

    @contextmanager
    def watching(self, tables: Sequence[str]) -> Iterator[None]:
        """Count inside the `with` block.

        Args:
            tables: Names of the dispatch tables whose transitions are counted.
        """
        modules = [
            importlib.import_module(found.name)
            for found in pkgutil.walk_packages(
                protocol_package.__path__, f"{protocol_package.__name__}."
            )
        ]
        original: Callable[..., list[Any]] = TableMachine.handle
        for module in modules:
            for name in tables:
                table = vars(module).get(name)
                if table is not None and id(table) not in self._tables:
                    self._tables[id(table)] = name
                    for phase, row in table.items():
                        for event, handler in row.items():
                            self._entries[f"{name}.{phase.name}.{event.__name__}"] = handler

        def counted(machine: Any, event: Any) -> list[Any]:
            name = self._tables.get(id(machine.table))
            if name is None:
                return original(machine, event)
            kind = type(event).__name__
            self.transitions[f"{name}.{machine.phase.name}.{kind}"] += 1
            for attribute in ("code", "outcome"):
                value = getattr(event, attribute, None)
                if value is not None:
                    self.codes[f"{kind}.{value.name}"] += 1
            effects = original(machine, event)
            for effect in effects:
                self.effects[type(effect).__name__] += 1
                failure = getattr(effect, "failure", None)
                if failure is not None:
                    self.failures[f"{type(machine).__name__}.{failure.name}"] += 1
                elif (error := getattr(effect, "error", None)) is not None:
                    self.failures[f"{type(machine).__name__}.{type(error).__name__}"] += 1
            return effects

        before = sys.gettrace()
        with ExitStack() as undo:
            undo.enter_context(mock.patch.object(TableMachine, "handle", counted))
            for name in ("start", "handle"):
                undo.callback(setattr, LogMachine, name, getattr(LogMachine, name))
                setattr(LogMachine, name, self._counted_step(getattr(LogMachine, name)))
            undo.callback(sys.settrace, before)
            sys.settrace(self.lines.trace)
            yield

    def _counted_step(self, step: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Return a step of a machine of logs that also counts."""

        def counted(machine: LogMachine[Any], *replies: Any) -> list[Any]:
            for reply in replies:
                if (outcome := getattr(reply, "outcome", None)) is not None:
                    self.codes[f"{type(reply).__name__}.{outcome.name}"] += 1
            effects = step(machine, *replies)
            for effect in effects:
                self.effects[type(effect).__name__] += 1
                if (error := getattr(effect, "error", None)) is not None:
                    self.failures[f"{type(machine).__name__}.{type(error).__name__}"] += 1
            return effects

        return counted

    def add(self, other: Coverage) -> None:
        """Add the counts of `other`, which must be of the same files and tables."""
        self.transitions += other.transitions
        self.effects += other.effects
        self.codes += other.codes
        self.failures += other.failures
        self.lines.add(other.lines)

    def never(self) -> list[str]:
        """The transitions that no schedule reached, without REFUSED ones: mistakes of callers."""
        return [
            name
            for name, handler in self._entries.items()
            if name not in self.transitions and handler is not REFUSED
        ]

    def report(self, out: TextIO, wanted: Wanted) -> int:
        """Print what was reached, what was not reached, and why.

        Args:
            out: The stream to print to.
            wanted: What the schedules must reach.

        Returns:
            The number of errors: gaps without a reason, and reasons for what is reached.
        """
        self._print_counts(out)
        missing = self.never()
        missing += [n for n in wanted.codes if n not in self.codes and n not in self.failures]
        unreached = self.lines.unreached()
        used: set[str] = set()

        def reason_of(name: str) -> str | None:
            for pattern, reason in [*wanted.reasons.items(), *wanted.rare.items()]:
                if fnmatchcase(name, pattern):
                    used.add(pattern)
                    return reason
            return None

        explained = unexplained = 0
        out.write("never reached\n")
        for name in [*missing, *unreached]:
            reason = reason_of(name)
            explained += reason is not None
            unexplained += reason is None
            where = f" {_spans(unreached[name])}" if name in unreached else ""
            out.write(f"  {name}{where}: {reason or 'NO REASON'}\n")
        outdated = [pattern for pattern in wanted.reasons if pattern not in used]
        out.writelines(
            f"  {pattern}: is reached, its reason is OUT OF DATE\n" for pattern in outdated
        )
        met, total = self.lines.reached
        entries = len(self._entries)
        out.write(
            f"{entries - len(self.never())} of {entries} transitions, {met:,} of {total:,} lines, "
            f"{explained} gaps with a reason, {unexplained} without, "
            f"{len(outdated)} reasons out of date\n"
        )
        return unexplained + len(outdated)

    def _print_counts(self, out: TextIO) -> None:
        for title, counts in (
            ("transitions", self.transitions),
            ("effects", self.effects),
            ("codes and outcomes", self.codes),
            ("failures", self.failures),
        ):
            out.write(f"{title}\n")
            for name in sorted(counts):
                ignored = " (ignored)" if self._entries.get(name) is IGNORED else ""
                out.write(f"  {counts[name]:9,} {name}{ignored}\n")


def is_covered(wanted: Wanted, play: Callable[[], object], out: TextIO) -> bool:
    """Whether `play` reaches what is wanted, and nothing that is listed as not reached."""
    return not covered(wanted, play).report(out, wanted)


def covered(wanted: Wanted, play: Callable[[], object]) -> Coverage:
    """Run `play`, and return what it reaches."""
    coverage = Coverage(wanted.files)
    with coverage.watching(wanted.tables):
        play()
    return coverage


def _spans(lines: Sequence[int]) -> str:
    """Return line numbers as text, with consecutive numbers joined into spans."""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
