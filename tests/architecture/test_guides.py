"""The links, files, modules, commands, settings and metrics that guides name exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from bookie_server.config import MEBIBYTE, BookieSettings
from bookie_server.service.limits.lanes import Lanes
from docs.generate.metrics import descriptions
from docs.generate.pages import PAGES
from ledgerlog_spark.cli.main import app
from tests.abuse.abuses import ABUSES
from tests.architecture.test_docs import GUIDES as DOCS
from tests.architecture.test_style import PYTHON, ROOT
from tests.matrix.__main__ import TESTS as MATRIX_TESTS

GUIDES = [*DOCS, ROOT / "benchmarks" / "README.md"]
COMMANDS: Any = get_command(app)
SHARED = [ROOT / "benchmarks" / "options.py"]
LIMITS = (ROOT / "docs" / "LIMITS.md").read_text()
TESTING = (ROOT / "docs" / "TESTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()

GENERATED = {ROOT / "docs" / page for page in PAGES}
METRICS = LIMITS.partition("## Metrics\n")[2].partition("\n#")[0]

LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
FILE = re.compile(r"`((?:tests|ledgerlog_spark|bookie_server|benchmarks|notebooks)/[\w/.]*\w)/?`")
MODULE = re.compile(r"python -m ([\w.]+\w)")
OPTIONS = re.compile(r"python -m ((?:tests|benchmarks)[\w.]*)([^`\n#|]*)")
COMMAND = re.compile(r"(?:`|^(?:[A-Z_]+=\S+ )?)ledgerlog ([a-z][^`\n#]*)", re.MULTILINE)
SETTING = re.compile(r"^\| `(\w+)` \| ([\d,]+)( MiB)? \|", re.MULTILINE)
METRIC = re.compile(r"`([a-z]\w*|\.\.\._\w+)`")


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors_of(path: Path) -> set[str]:
    text = path.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    return headings | set(re.findall(r'<a (?:id|name)="([^"]+)', text))


@pytest.mark.parametrize("guide", GUIDES, ids=by_name)
def test_links_files_and_modules_of_a_guide_exist(guide: Path) -> None:
    text = guide.read_text()
    broken = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (guide.parent / name).resolve() if name else guide
        if target in GENERATED:
            continue  # the build of the site checks their anchors
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    broken += [file for file in FILE.findall(text) if not (ROOT / file).exists()]
    broken += [name for name in MODULE.findall(text) if importlib.util.find_spec(name) is None]
    assert broken == []


def sources_of(module: str) -> str:
    """The text of a module, or of all modules of a package."""
    path = ROOT / module.replace(".", "/")
    files = [*path.rglob("*.py")] if path.is_dir() else [path.with_suffix(".py"), *SHARED]
    for shared in ("command", "search"):
        if any(f"tests.sim.{shared} import" in file.read_text() for file in files):
            files.append(ROOT / f"tests/sim/{shared}.py")
    return "".join(file.read_text() for file in files)


@pytest.mark.parametrize("guide", GUIDES, ids=by_name)
def test_options_of_our_modules_exist(guide: Path) -> None:
    missing = [
        f"{module} {word}"
        for module, rest in OPTIONS.findall(guide.read_text())
        for word in re.findall(r"(?<!\S)--[a-z-]+", rest)
        if f'"{word}"' not in sources_of(module.strip("."))
    ]
    assert missing == []


def not_understood(words: list[str]) -> str | None:
    """The first of these words that is no command or option of the command line."""
    command: Any = COMMANDS
    for word in words:
        if commands := getattr(command, "commands", None):
            if unknown := [name for name in word.split("|") if name not in commands]:
                return unknown[0]
            command = commands[word.split("|")[0]]
        elif word.startswith("-") and command.name != "run":
            options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
            if word not in {*options, "--help"}:
                return word
    return None


def commands_in(text: str) -> list[list[str]]:
    found = [match.partition(" | ")[0].split() for match in COMMAND.findall(text)]
    return [words for words in found if words[0] in COMMANDS.commands]


@pytest.mark.parametrize("guide", GUIDES, ids=by_name)
def test_commands_of_a_guide_exist(guide: Path) -> None:
    commands = commands_in(guide.read_text())
    assert {" ".join(words): word for words in commands if (word := not_understood(words))} == {}


def test_commands_that_messages_name_exist() -> None:
    texts = {path: re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in PYTHON}
    found = [words for text in texts.values() for words in commands_in(text)]
    assert len(found) > 20
    words_of = [[word for word in words if "{" not in word] for words in found]
    assert [words for words in words_of if not_understood([w.rstrip("'\".,") for w in words])] == []


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("logs set NAME --unset rollMs", None),
        ("logs set|history", None),
        ("logs compact", "compact"),
        ("logs set|compact", "compact"),
        ("logs set NAME --reset", "--reset"),
    ],
)
def test_unknown_commands_and_options_are_found(words: str, wrong: str | None) -> None:
    assert not_understood(words.split()) == wrong


def test_limits_of_a_bookie_are_documented_with_their_defaults() -> None:
    rows = SETTING.findall(LIMITS)
    assert len(rows) == LIMITS.partition("These limits are fixed")[0].count("\n| `")
    fields = BookieSettings.model_fields
    documented = {
        name: int(number.replace(",", "")) * (MEBIBYTE if unit else 1)
        for name, number, unit in rows
    }
    assert documented == {name: fields[name].default for name in documented}


def test_the_number_of_abuses_is_the_same_wherever_it_is_named() -> None:
    kinds = len(ABUSES.keys() - {"nothing"})
    assert re.findall(r"(\d+) kinds of abuse", LIMITS) == [str(kinds)] * 2
    assert re.findall(r"^abuse-test:.* (\d+) ways", MAKEFILE, re.MULTILINE) == [str(kinds)]


def test_folders_of_the_matrix_are_documented() -> None:
    row = next(line for line in TESTING.splitlines() if line.startswith("| `tests/matrix`"))
    assert FILE.findall(row)[1:] == list(MATRIX_TESTS)


def test_lanes_have_the_sizes_that_are_documented() -> None:
    fields = BookieSettings.model_fields
    lanes = Lanes(fields["connections_max"].default, fields["in_flight_bytes_max"].default)
    sizes = {lane.name: lane.size_bytes_max for lane in lanes.all}
    shared_bytes = sizes["adds"] + sizes["reads"] + sizes["control"]
    parts = {"adds": "half", "reads": "three eighths", "control": "an eighth"}
    eighths = {name: 8 * sizes[name] // shared_bytes for name in parts}
    assert eighths == {"adds": 4, "reads": 3, "control": 1}
    for lane, part in parts.items():
        assert re.search(rf"lane `{lane}` \|.*at most {part} of the rest[, |]", LIMITS)
    assert sizes["writes"] * 16 == 3 * sizes["adds"] == 16 * 12 * MEBIBYTE
    assert re.search(r"lane `writes` \|.*three sixteenths of `adds`, which is 12 MiB", LIMITS)


def test_metrics_that_are_documented_exist() -> None:
    rows = [line for line in METRICS.splitlines() if "| `" in line]
    names = [name for line in rows for name in METRIC.findall(line.split("|")[1])]
    families = [metric.name.removeprefix("ledgerlog_bookie_") for metric in descriptions()]
    written = {name for family in families for name in (family, f"{family}_total")}
    source = "".join(path.read_text() for path in PYTHON if "bookie_server" in path.parts)
    assert len(names) > 15
    missing = [
        name
        for name in names
        if not (
            any(one.endswith(name.strip(".")) for one in written)
            if name.startswith("...")
            else name in written or f'"{name}"' in source
        )
    ]
    assert missing == []


def test_every_suite_is_in_the_table_of_suites() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py"))}
    table = (ROOT / "docs" / "TESTING.md").read_text().partition("## Rules")[0]
    assert folders - {"fixtures", "golden"} == set(re.findall(r"`tests/(\w+)`", table))
