"""The common parts of all commands: help with an example, exit codes, short errors."""

from __future__ import annotations

import inspect
import sys
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def command_lines(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from command_lines(below, (*words, name))


TEXT_COLUMNS = 78
LEDGERLOG: Any = typer.main.get_command(app)
COMMANDS = list(command_lines(LEDGERLOG))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command. Typer would build all commands again each time, which takes 50 ms."""
    monkeypatch.setattr(typer.main, "get_command", {app: LEDGERLOG}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["ledgerlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_all_commands_that_are_promised_exist() -> None:
    promised = """
        demo, doctor, local up, local down, local status, local list, local kill, local start,
        zookeeper run, bookie run, bookie inspect manifest, bookie inspect journal,
        bookie inspect entrylog, bookie inspect index, bookie inspect ledger, bookie check,
        bookie dump, bookie rebuild-index, bookie format, bookie upgrade, bookie downgrade,
        cluster init, cluster info, cluster nuke, simpletest, bookies sanity, ledgers check,
        ledgers export, ledgers import, ledgers accept-loss, autorecovery status,
        autorecovery queue, autorecovery enable, autorecovery disable, autorecovery audit,
        autorecovery delay,
        bookies list, bookies info, bookies place, bookies policy, bookies drain,
        bookies decommission, bookies recover, ledgers list, ledgers show,
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
    """Typer joins only the lines of a first paragraph. The others keep their line breaks."""
    command = LEDGERLOG
    for word in words:
        command = command.commands[word]
    _, *others = inspect.cleandoc(command.help or "").split("\n\n")
    assert [line for line in "\n".join(others).splitlines() if len(line) > TEXT_COLUMNS] == []


@pytest.mark.parametrize(
    ("words", "promised"),
    [
        (("logs", "check"), "Verify that entries have enough replicas"),
        (("logs", "truncate"), "only whole ranges are deleted. A leader log has no versions"),
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
        (("cluster", "nuke", "--delete"), "--instance-id"),
        (("ledgers", "list", "-u", "localhost:2181"), "zk://127.0.0.1:2181/ledgers"),
        (("ledgers", "list", "-u", "zk://localhost:99999/ledgers"), "99999 is not a port"),
        (("ledgers", "read", "1", "--raw", "--json"), "pass one of them"),
        (("ledgers", "seal", "1", "--password-file", "/nonexistent/p"), "/nonexistent/p"),
        (("logs", "read", "l", "--password-file", "/nonexistent/p"), "/nonexistent/p"),
        (("local", "up", "--bookies", "0"), "at least 1 bookie"),
        (("local", "up", "--directory", "/dev/null/x"), "--directory"),
        (("local", "down", "--directory", "/nonexistent"), "ledgerlog local up"),
        (("local", "status", "--directory", "/nonexistent"), "ledgerlog local up"),
        (("local", "status"), "`ledgerlog local up`, or pass"),
        (("local", "kill", "bookie-0", "--signal", "BOO"), "KILL, TERM, STOP and CONT"),
        (("zookeeper", "run", "--directory", "zk", "--port", "0"), "port"),
        (("bookie", "run", "--prt", "3"), "ledgerlog bookie run: error: unrecognized arguments"),
        (("logs", "merge", "flights", "--compression", "gzip"), "zstd, lz4, none"),
        (("logs", "set", "flights", "rollMs"), "PROPERTY=VALUE"),
        (("logs", "create", "flights", "foo"), "`ledgerlog logs set LOG --unset PROPERTY`"),
        (("logs", "truncate", "flights"), "--offset or --before"),
        (("logs", "restore", "flights"), "--at TIME"),
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


def test_a_dump_that_fails_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bookie, output = tmp_path / "bookie", tmp_path / "ledger-7"
    bookie.mkdir()
    (bookie / "MANIFEST").write_text("ledgerlog-manifest 4 2 00000000\n{}")
    dump = ("bookie", "dump", str(bookie), "7", "--output", str(output))
    for _ in range(2):
        assert run(monkeypatch, *dump) == 2
        assert "MANIFEST is damaged" in " ".join(capsys.readouterr().err.split())
        assert not output.exists()
    output.write_text("of somebody")
    assert run(monkeypatch, *dump) == 2
    assert "pass another --output" in " ".join(capsys.readouterr().err.split())
    assert output.read_text() == "of somebody"
