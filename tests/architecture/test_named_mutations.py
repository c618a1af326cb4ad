"""The tables of docs/MUTATIONS.md name the mutations, their rules, and what detects them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.architecture.trees import ROOT
from tests.sim.absent_mutations import ABSENT_MUTATIONS
from tests.sim.absent_scripts import ABSENT_COUNTEREXAMPLES
from tests.sim.auditor import mutations as of_auditors
from tests.sim.healing.mutations import MUTATIONS as OF_WORKERS
from tests.sim.healing.test_healing import COUNTEREXAMPLES as OF_HEALING
from tests.sim.joint.mutations import MUTATIONS as OF_ALL
from tests.sim.joint.test_joint import LEFT_LOCK
from tests.sim.leader.mutations import MUTATIONS as OF_LEADERS
from tests.sim.leader.test_counterexamples import SCRIPTS as OF_LEADER_SCRIPTS
from tests.sim.loss.test_losses import COUNTEREXAMPLES as OF_LOSSES
from tests.sim.release.mutations import MUTATIONS as OF_RELEASES
from tests.sim.release.test_releases import COUNTEREXAMPLES as OF_RELEASE_SCRIPTS
from tests.sim.vacate.test_vacations import SHOWN_BY

Row = tuple[str, str, str]
"""A mutation, its rule, and what detects it, as in a row of a table."""

LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
PAGE = LINK.sub(r"\1", (ROOT / "docs" / "MUTATIONS.md").read_text())
ROW = re.compile(r"^\| [^|]+\. \| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
SECTION = re.compile(r"^## .*\(`(tests/sim[a-z/]*)`\)$", re.MULTILINE)
RANDOM = "random schedules"
OF_CLAIMS = ("J14", "J15")


def tables() -> dict[str, list[Row]]:
    """The rows of each section, by the folder of its heading."""
    _, *parts = SECTION.split(PAGE)
    return {
        folder: [(name, rule, by) for name, rule, by in ROW.findall(text.partition("\n## ")[0])]
        for folder, text in zip(parts[::2], parts[1::2], strict=True)
    }


def scripted(
    mutations: Iterable[tuple[str, str]], scripts: Iterable[tuple[Callable[[], Any], str, str]]
) -> list[Row]:
    """Rows for mutations with their rules, each with its script and the broken invariant."""
    by = {name: f"`{script.__name__}` ({broken})" for script, name, broken in scripts}
    return [(name, rule, by[name]) for name, rule in mutations]


def rules_of(mutations: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, mutation.rule) for name, mutation in mutations.items()]


def of_auditor() -> list[Row]:
    mutations = of_auditors.MUTATIONS | of_auditors.COPY_MUTATIONS
    return [(name, rule, RANDOM) for name, rule in rules_of(mutations)]


def of_leader() -> list[Row]:
    by = {mutation: f"`{script.__name__}`" for script, mutation in OF_LEADER_SCRIPTS.items()}
    return [
        (name, mutation.rule, by[name])
        for name, mutation in OF_LEADERS.items()
        if mutation.rule in OF_CLAIMS
    ]


def of_joint() -> list[Row]:
    by = {"limbo_denies": RANDOM, "left_lock_stays": f"schedule {LEFT_LOCK}"}
    known = OF_WORKERS | of_auditors.MUTATIONS
    return [(name, one.rule, by[name]) for name, one in OF_ALL.items() if name not in known]


EXPECTED: dict[str, Callable[[], list[Row]]] = {
    "tests/sim/auditor": of_auditor,
    "tests/sim/healing": lambda: scripted(rules_of(OF_WORKERS), OF_HEALING),
    "tests/sim/release": lambda: scripted(rules_of(OF_RELEASES), OF_RELEASE_SCRIPTS),
    "tests/sim/vacate": lambda: [
        (name, rule, f"schedule {seed}") for name, (seed, rule) in SHOWN_BY.items()
    ],
    "tests/sim/joint": of_joint,
    "tests/sim/leader": of_leader,
    "tests/sim": lambda: scripted(
        [(name, rule) for name, (rule, _) in ABSENT_MUTATIONS.items()], ABSENT_COUNTEREXAMPLES
    ),
}


@pytest.mark.parametrize("folder", EXPECTED)
def test_a_table_has_each_mutation_with_what_detects_it(folder: str) -> None:
    assert sorted(tables()[folder]) == sorted(EXPECTED[folder]())


def test_each_table_is_compared() -> None:
    assert tables().keys() == EXPECTED.keys()


def test_a_hole_and_an_empty_directory_have_their_mutations() -> None:
    script = "a_hole_and_an_empty_directory_are_not_two_denials"
    named = {name for one, name, _ in OF_LOSSES if one.__name__ == script}
    (text,) = [part for part in PAGE.split("\n\n") if script in part]
    assert named == {name for name in re.findall(r"`(\w+)`", text) if name != script}


def test_what_checks_an_invariant_exists() -> None:
    section = PAGE.partition("## Invariants")[2].partition("\n## ")[0]
    files = re.findall(r"`(tests/[a-z/_]+\.py)`", section)
    assert len(files) >= 10
    assert [file for file in files if not (ROOT / file).exists()] == []
