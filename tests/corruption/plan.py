"""The cases of a whole run, in portions for several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

from tests.corruption.cookies import COOKIES, judge_cookies
from tests.corruption.damage import Case, cases_of
from tests.corruption.judge import Verdict, judge
from tests.corruption.scenarios import scenario

ROLES: dict[str, tuple[str, ...]] = {
    "killed": (
        "entry log, index",
        "open entry log",
        "unused entry log",
        "MANIFEST",
        "ledger states",
    ),
    "stopped": ("MANIFEST", "ledger states"),
    "journal": ("journal", "MANIFEST", "ledger states"),
}
"""The files of each scenario that are damaged. The other files are like one of these."""
PORTION = 500
REASONS_MAX = 20

Counts = Counter[tuple[str, str, str]]
"""Number of cases by file, kind of damage, and verdict."""


@cache
def cases(name: str) -> Sequence[Case]:
    """All cases of a scenario."""
    made = scenario(name)
    files = frozenset(file for file, role in made.roles.items() if role in ROLES[name])
    return list(cases_of(made, files))


def portions() -> Iterator[tuple[str, int]]:
    """Name of the scenario and number of the first case of each portion."""
    for name in ROLES:
        yield from ((name, start) for start in range(0, len(cases(name)), PORTION))
    yield COOKIES, 0


def play(name: str, start: int) -> tuple[Counts, list[str]]:
    """Judge one portion. Return the counts, and the reasons of wrong cases."""
    if name == COOKIES:
        verdicts = judge_cookies()
        counts = Counter((COOKIES, case.kind, verdict.value) for case, verdict, _ in verdicts)
        wrong = [f"{case}: {why}" for case, verdict, why in verdicts if verdict is Verdict.WRONG]
        return counts, wrong[:REASONS_MAX]
    return play_cases(cases(name)[start : start + PORTION])


def play_cases(chosen: Sequence[Case]) -> tuple[Counts, list[str]]:
    """Judge some cases."""
    counts: Counts = Counter()
    wrong: list[str] = []
    for number, case in enumerate(chosen):
        made = scenario(case.scenario)
        verdict, why = judge(made, case, number)
        counts[made.roles[case.file], case.kind, verdict.value] += 1
        if verdict is Verdict.WRONG and len(wrong) < REASONS_MAX:
            wrong.append(why)
    return counts, wrong


def sample(seed: int, count: int) -> list[Case]:
    """Some cases, the same number for each file."""
    random = Random(seed)
    groups: dict[tuple[str, str], list[Case]] = {}
    for name in ROLES:
        made = scenario(name)
        for case in cases(name):
            groups.setdefault((name, made.roles[case.file]), []).append(case)
    each = count // len(groups)
    return [case for group in groups.values() for case in random.sample(group, each)]
