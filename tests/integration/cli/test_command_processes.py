"""The command as a process: its characters, a closed pipe, and an interrupt at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import COMMAND, ROOT


def test_closed_pipe_ends_a_command_without_a_word(tmp_path: Any) -> None:
    command = f"{sys.executable} -c 'from ledgerlog_spark.cli.main import main; main()' --help"
    said = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert said.returncode in (0, 1)
    assert said.stderr == ""


PRINTS = """
from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.cli.main import main
from ledgerlog_spark.cli.output import console, print_table
from ledgerlog_spark.model import Fragment
import sys, typer
from ledgerlog_spark.cli import main as commands

@commands.app.command("picture")
def picture():
    fragments = (Fragment(0, ("a", "b")), Fragment(5, ("b", "c")))
    ledger = DrawnLedger(7, fragments, 10)
    print_table("a täble", ("näme",), [("välue",)])
    console.print(draw_ledgers([ledger], bookies=["a", "b", "c"], killed={"a"}, width=60))

sys.argv = ["ledgerlog", "picture"]
main()
"""


CHARACTERS = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONIOENCODING", "PYTHONUTF8")


@pytest.mark.parametrize(
    "told", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}], ids=str
)
def test_pictures_and_tables_are_printed_on_a_terminal_of_ascii(told: dict[str, str]) -> None:
    inherited = {k: v for k, v in os.environ.items() if k not in CHARACTERS}
    said = subprocess.run(
        [sys.executable, "-c", PRINTS],
        capture_output=True,
        check=True,
        env=inherited | told | {"PYTHONPATH": str(ROOT)},
    )
    assert said.stderr == b""
    picture = said.stdout.decode("ascii")
    assert "a         xxxxx....." in picture
    assert "b         ##########" in picture
    assert "n\\xe4me" in picture


def test_characters_of_utf_8_are_printed_where_a_setting_or_the_locale_has_them() -> None:
    inherited = {k: v for k, v in os.environ.items() if k not in CHARACTERS}
    for told in ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "1"}, {}):
        said = subprocess.run(
            [sys.executable, "-c", PRINTS],
            capture_output=True,
            check=True,
            env=inherited | told | {"PYTHONPATH": str(ROOT)},
        )
        assert "n\u00e4me" in said.stdout.decode(), told


ENDS_SLOWLY = """
import atexit, os, signal, sys
from ledgerlog_spark.cli.__main__ import main

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)

atexit.register(interrupted)
sys.argv = ["ledgerlog", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("arguments", [("--version",), ("ledgers", "show", "three")], ids=str)
def test_interrupt_after_the_command_prints_no_traceback(arguments: tuple[str, ...]) -> None:
    """Python takes a moment to end, because it joins its threads and runs its exit handlers."""
    said = subprocess.run(
        [sys.executable, "-c", ENDS_SLOWLY, *arguments],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert said.returncode == -signal.SIGINT
    assert b"Traceback" not in said.stderr


def test_interrupt_while_the_command_is_still_imported_prints_no_traceback(tmp_path: Path) -> None:
    """A user who presses Ctrl-C in the first half second sees no message of Python."""
    slow = tmp_path / "typer"
    slow.mkdir()
    (slow / "__init__.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit('not reached')\n"
    )
    said = subprocess.run(
        [*COMMAND, "--version"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert said.returncode in (-2, 130)
    assert b"Traceback" not in said.stderr
    assert b"not reached" not in said.stderr
