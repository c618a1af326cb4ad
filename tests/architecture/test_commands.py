"""A command of the checkout with nothing to run ends with an error, not with success."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from benchmarks.options import above_zero, positive
from tests.architecture.trees import ROOT, assert_none, name, nodes, text, tracked
from tests.mutation.lists import part_of

NUMBERS = {"int", "float"}
ANY_NUMBER = {"--seed"}
"""Options that accept every number."""

COMMANDS = [
    path
    for path in tracked()
    if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {"benchmarks", "tests", "docs"}
]


def unchecked(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Options for numbers that accept 0, a negative number, or text."""
    for node in nodes:
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        given = {each.arg: each.value for each in node.keywords}
        option = ast.literal_eval(node.args[0])
        kind, default = given.get("type"), given.get("default")
        is_number = isinstance(default, ast.Constant) and re.fullmatch(r"\d+", str(default.value))
        is_unchecked = kind is None if is_number else getattr(kind, "id", "") in NUMBERS
        if (is_unchecked or getattr(kind, "id", "") in NUMBERS) and option not in ANY_NUMBER:
            yield option


def test_numbers_of_commands_are_checked() -> None:
    assert len(COMMANDS) > 100
    assert_none(
        (
            f"{name(path)}: {option}"
            for path in COMMANDS
            if "add_argument" in text(path)
            for option in unchecked(nodes(path))
        ),
        "use `positive` or `above_zero` of benchmarks/options.py",
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('p.add_argument("--rounds", type=int, default=3)', ["--rounds"]),
        ('p.add_argument("--seconds", type=float)', ["--seconds"]),
        ('p.add_argument("--rounds", default="3")', ["--rounds"]),
        ('p.add_argument("--rounds", default=3)', ["--rounds"]),
        ('p.add_argument("--rounds", type=positive, default=3)', []),
        ('p.add_argument("--seed", type=int, default=0)', []),
        ('p.add_argument("--json", action="store_true")', []),
        ('p.add_argument("--only", default="")', []),
    ],
)
def test_the_rule_finds_numbers_that_are_not_checked(code: str, found: list[str]) -> None:
    assert list(unchecked(ast.walk(ast.parse(code)))) == found


@pytest.mark.parametrize("text", ["0", "-3", "", "x", "1.5", "nan"])
def test_what_is_no_positive_number_is_refused_by_its_name(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=positive)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([f"--rounds={text}"])
    assert ended.value.code == 2
    assert f"argument --rounds: {text!r} is not a whole number of at least 1" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("text", ["0", "-0.5", "", "x", "nan", "inf"])
def test_what_is_no_number_above_zero_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
        above_zero(text)


def test_numbers_that_a_command_can_use_are_kept() -> None:
    assert (positive("1"), positive("5000"), above_zero("0.5")) == (1, 5_000, 0.5)


@pytest.mark.parametrize("text", ["0/5", "6/5", "1/0", "1", "a/b"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        part_of(text)


def made(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The commands that `make` would run if everything were installed."""
    return subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.installed", *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},  # of `make check`
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("empty", ["SOAK=", "SOAK= "])
def test_a_soak_of_nothing_is_refused(empty: str) -> None:
    ended = made("soak", empty)
    assert ended.returncode != 0
    assert "SOAK is empty" in ended.stderr


@pytest.mark.parametrize("target", ["sim-handles", "sim-log", "sim-leader", "sim-transport"])
@pytest.mark.parametrize(("asked", "least"), [(0, 0), (1, 1), (500, 100)])
def test_a_part_of_the_schedules_is_none_only_of_none(target: str, asked: int, least: int) -> None:
    commands = made(target, f"LOG_SCHEDULES={asked}").stdout
    parts = re.findall(r"--schedules (.*) --seed", commands)
    counted = [
        int(subprocess.check_output(["bash", "-c", f"echo {part}"], text=True)) for part in parts
    ]
    assert counted
    assert least <= min(counted) <= max(counted) <= asked
