"""What every command has in common: help with an example, exit codes, errors of one sentence."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from ledgerlog_spark.cli.main import app, exit_code, main
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerFencedError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from tests.fixtures.command_line import COMMAND, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


def command_lines(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from command_lines(below, (*words, name))


TEXT_COLUMNS = 78
COMMANDS = list(command_lines(typer.main.get_command(app)))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ledgerlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_all_commands_that_are_promised_exist() -> None:
    promised = """
        demo, doctor, local up, local down, local status, local list, local kill, local start,
        zookeeper run, bookie run, bookies list, bookies info, ledgers list, ledgers show,
        ledgers read, ledgers seal, ledgers delete, logs list, logs show, logs create,
        logs append, logs tail, logs read, logs set, logs history,
        logs restore, logs sweep, logs check, logs truncate, logs delete, logs merge, upkeep run
    """
    assert {tuple(line.split()) for line in promised.split(",")} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_an_example_of_that_very_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, *words, "--help") == 0
    printed = capsys.readouterr().out
    assert "…" not in printed, "a name is cut on a terminal of 80 columns"
    assert f"Example: {' '.join(('ledgerlog', *words))}" in " ".join(printed.split())
    usage = printed.partition("Usage:")[2].partition("\n")[0]
    assert "[[" not in usage, "typer adds the brackets of what may be left out"
    assert "...]" not in usage, "and the dots of what may be repeated"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_lines_of_help_are_not_broken_twice(words: tuple[str, ...]) -> None:
    """Typer joins the lines of a first paragraph only: a longer one is broken at its end, too."""
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    _, *others = inspect.cleandoc(command.help or "").split("\n\n")
    assert [line for line in "\n".join(others).splitlines() if len(line) > TEXT_COLUMNS] == []


@pytest.mark.parametrize(
    ("words", "promised"),
    [
        (("logs", "check"), "Verify that the ends of every range have enough replicas"),
        (("logs", "truncate"), "as in leader logs, only ranges that are older as a whole"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_help_promises_no_more_than_is_done(
    words: tuple[str, ...],
    promised: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, *words, "--help") == 0
    assert promised in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("ledgerlog 0.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (LedgerNotFoundError("x"), 1),
        (MetadataUnavailableError("x"), 4),
        (LedgerFencedError("x"), 3),
        (MetadataUnknownError("x"), 3),
    ],
)
def test_exit_code_says_whether_it_happened_and_whether_to_try_again(error: Any, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lgs",), "logs"),
        (("ledgers", "show", "three"), "integer"),
        (("ledgers", "show"), "LEDGER_ID"),
        (("ledgers", "list", "-u", "localhost:2181"), "zk://127.0.0.1:2181/ledgers"),
        (("ledgers", "list", "-u", "zk://localhost:99999/ledgers"), "99999 is not a port"),
        (("ledgers", "read", "1", "--raw", "--json"), "choose one"),
        (("ledgers", "seal", "1", "--password-file", "/nonexistent/p"), "/nonexistent/p"),
        (("logs", "read", "l", "--password-file", "/nonexistent/p"), "/nonexistent/p"),
        (("local", "up", "--bookies", "0"), "at least 1 bookie"),
        (("local", "up", "--directory", "/dev/null/x"), "--directory"),
        (("local", "down", "--directory", "/nonexistent"), "ledgerlog local up"),
        (("local", "status", "--directory", "/nonexistent"), "ledgerlog local up"),
        (("local", "status"), "`ledgerlog local up`, or name"),
        (("local", "kill", "bookie-0", "--signal", "BOO"), "KILL, TERM, STOP and CONT"),
        (("zookeeper", "run", "--directory", "zk", "--port", "0"), "port"),
        (("bookie", "run", "--prt", "3"), "ledgerlog bookie run: error: unrecognized arguments"),
        (("logs", "merge", "flights", "--compression", "gzip"), "zstd, lz4, none"),
        (("logs", "set", "flights", "rollMs"), "PROPERTY=VALUE"),
        (("logs", "create", "flights", "foo"), "`logs set` with --unset PROPERTY"),
        (("logs", "truncate", "flights"), "--offset or --before"),
        (("logs", "restore", "flights"), "--at and a time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_usage_is_one_line_on_stderr_that_helps(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert "Traceback" not in output.err
    assert list(tmp_path.iterdir()) == []


def test_group_without_a_command_prints_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "ledgers") == 2
    output = capsys.readouterr()
    assert "seal" in output.out + output.err
    assert "usage:" not in output.err


def test_service_uri_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEDGERLOG_METADATA_SERVICE_URI", "zk://from-the-environment/")
    assert run(monkeypatch, "logs", "list") == 2
    assert "from-the-environment" in capsys.readouterr().err


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
    """Python takes a moment to end: its threads are joined, its exit handlers run."""
    said = subprocess.run(
        [sys.executable, "-c", ENDS_SLOWLY, *arguments],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert said.returncode == -signal.SIGINT
    assert b"Traceback" not in said.stderr


def test_interrupt_while_the_command_is_still_imported_prints_no_traceback(tmp_path: Path) -> None:
    """Whoever presses Ctrl-C in the first half second sees nothing of Python."""
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
