"""The targets of the Makefile and the mutations that the documentation names exist."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.architecture.test_style import ROOT
from tests.sim.leader.mutations import MUTATIONS as LEADER_MUTATIONS
from tests.sim.log.mutations import MUTATIONS as LOG_MUTATIONS
from tests.sim.mutations import MUTATIONS

if TYPE_CHECKING:
    from pathlib import Path

GUIDES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")]
)
COMMAND = re.compile(r"(?:`|^\s*\$?\s*|#+ )(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)", re.MULTILINE)
ROW = re.compile(r"^\| `(tests/sim[a-z/]*)` \| `(\w+)` \| [^|]+ \|$", re.MULTILINE)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_target_of_make_that_a_guide_names_is_one(guide: Path) -> None:
    assert set(COMMAND.findall(guide.read_text())) <= targets()


def test_table_of_mutations_is_that_of_the_simulations() -> None:
    listed = ROW.findall((ROOT / "docs" / "TESTING.md").read_text())
    there = [("tests/sim", name) for name in MUTATIONS]
    there += [("tests/sim/log", mutation.__name__) for mutation in LOG_MUTATIONS]
    there += [("tests/sim/leader", name) for name in LEADER_MUTATIONS]
    assert sorted(listed) == sorted(there)


PIP_INSTALL_OURS = re.compile(r"pip install [^\n`]*?['\"\\ ]ledgerlog\b")


def test_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    """The package index does not have this project, so pip would install another package."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    texts = [ROOT / name for name in tracked if name.endswith((".py", ".md", ".ipynb", ".toml"))]
    found = [path for path in texts if PIP_INSTALL_OURS.search(path.read_text())]
    assert found == []


def test_decisions_are_numbered_once_and_as_their_files_are() -> None:
    titles = {path: path.read_text().partition("\n")[0] for path in (ROOT / "docs/adr").iterdir()}
    numbers = sorted(int(path.name[:4]) for path in titles)
    assert numbers == list(range(1, len(numbers) + 1))
    wrong = [
        path.name
        for path, title in titles.items()
        if not title.startswith(f"# {int(path.name[:4])}. ")
    ]
    assert wrong == []


def test_the_site_lists_each_decision_once_and_in_order() -> None:
    listed = re.findall(r"- adr/(\S+)", (ROOT / "mkdocs.yml").read_text())
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").iterdir())


CHANGE = re.compile(r"^- (.*(?:\n  .*)*)", re.MULTILINE)
WORDS_OF_A_BEGINNING = 5


def test_changelog_tells_no_change_twice_and_ends_its_sentences() -> None:
    """A merge of two branches may leave two versions of an entry, or half of one."""
    changes = CHANGE.findall((ROOT / "CHANGELOG.md").read_text())
    begun = [" ".join(change.split()[:WORDS_OF_A_BEGINNING]) for change in changes]
    assert [begin for begin in set(begun) if begun.count(begin) > 1] == []
    assert [change for change in changes if not change.endswith(".")] == []
