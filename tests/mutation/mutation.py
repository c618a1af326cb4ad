"""One plausible mistake as a replacement of text, and the suites that are to notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    """What somebody could have written instead.

    Attributes:
        name: Unique, in words_with_underscores.
        file: Relative to the repository.
        old: Occurs exactly once in the file.
        new: Replaces it; the file still compiles.
        reason: What goes wrong, in one line.
        equivalent: Why no test can notice it; empty where one has to.
    """

    name: str
    file: str
    old: str
    new: str
    reason: str
    equivalent: str = ""

    def applied(self, source: str) -> str:
        """The file's text with the mistake.

        Raises:
            ValueError: `old` does not occur exactly once.
        """
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: `old` occurs {found} times in {self.file}, not once")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Suite:
    """Commands that are to notice a mistake; all are `python -m ...`.

    Attributes:
        simulators: Names of SIMULATORS.
        tests: For pytest.
    """

    simulators: tuple[str, ...]
    tests: tuple[str, ...]


SIMULATORS = {
    "ledger": ("tests.sim", "--schedules", "600", "--seed", "1", "--no-shrink"),
    "log": ("tests.sim.log", "--schedules", "400", "--seed", "1"),
    "leader": ("tests.sim.leader", "--schedules", "300", "--seed", "1"),
    "crash": ("pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "tests/crash"),
}
"""Random search alone: the scripted counterexamples count among the tests."""

SUITES = {
    "ledgerlog_spark/protocol/log_": Suite(
        ("log",), ("tests/unit/log", "tests/sim/log", "tests/unit/upkeep")
    ),
    "ledgerlog_spark/protocol/leader_": Suite(
        ("leader",), ("tests/unit/leader", "tests/unit/log", "tests/sim/leader")
    ),
    "ledgerlog_spark/protocol/": Suite(
        ("ledger",), ("tests/unit/protocol", "tests/transcripts", "tests/unit/client", "tests/sim")
    ),
    "ledgerlog_spark/log/": Suite(
        ("log", "leader"),
        (
            "tests/unit/log",
            "tests/unit/upkeep",
            "tests/unit/leader",
            "tests/contract/test_log_store.py",
        ),
    ),
    "ledgerlog_spark/metadata/": Suite(
        ("log",), ("tests/unit/metadata", "tests/contract", "tests/unit/log")
    ),
    "ledgerlog_spark/upkeep/": Suite(("log",), ("tests/unit/upkeep", "tests/unit/log")),
    "ledgerlog_spark/client/": Suite(
        (), ("tests/unit/client", "tests/properties", "tests/unit/log", "tests/contract")
    ),
    "ledgerlog_spark/transport/": Suite(
        (), ("tests/unit/transport", "tests/contract/test_transport.py")
    ),
    "bookie_server/service/": Suite(
        ("ledger",), ("tests/unit/bookie_service", "tests/contract/test_transport.py")
    ),
    "bookie_server/": Suite(
        ("ledger", "crash"), ("tests/unit/bookie", "tests/properties", "tests/sim")
    ),
}
"""By the beginning of a mutation's file; the longest one counts."""


def suite_of(mutation: Mutation) -> Suite:
    """What is run for a mutation."""
    fitting = [prefix for prefix in SUITES if mutation.file.startswith(prefix)]
    assert fitting, f"no suite covers {mutation.file}"
    return SUITES[max(fitting, key=len)]
