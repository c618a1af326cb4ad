"""The confirmation before a deletion (ledgerlog_spark.cli.options)."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from ledgerlog_spark.cli.options import confirm
from ledgerlog_spark.errors import ConfigurationError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_yes_at_the_terminal_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm("drop 3 rows", otherwise="nothing was dropped")
    assert sys.stdin.read() == ""


def test_a_no_at_the_terminal_ends_the_command_and_says_what_did_not_happen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(typer.Exit) as ended:
        confirm("drop 3 rows", otherwise="nothing was dropped")
    assert ended.value.exit_code == 1
    assert "nothing was dropped" in capsys.readouterr().out


def test_without_a_terminal_yes_has_to_be_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigurationError, match=r"nothing was dropped.*--yes"):
        confirm("drop 3 rows", otherwise="nothing was dropped")
