"""The output of commands: data without changes, counts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from ledgerlog_spark.cli import output
from ledgerlog_spark.cli.local import _row
from ledgerlog_spark.cli.logs.lookup import shown_cell
from ledgerlog_spark.cli.output import counted, print_fields, print_table
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.members import Member

if TYPE_CHECKING:
    from pathlib import Path

DATA = ("[error] disk full", "[/x]", "[red]", ":cat:", "[[1], [2]]")


@pytest.mark.parametrize("data", DATA)
def test_data_are_no_markup(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of a program's log often begin with the level in brackets."""
    print_table(f"log {data}", (f"column {data}",), [(data,)])
    print_fields(f"log {data}", {f"name {data}": f"value {data}"})
    output.console.print(f"in {data}")
    printed = capsys.readouterr().out
    for expected in ("log", "column", "name", "value", "in"):
        assert f"{expected} {data}" in printed


def test_columns_of_numbers_are_aligned_to_the_right_also_where_one_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table("", ("port", "name", "finding"), [(2181, "a", None), (None, "bb", None)])
    assert [line[1:-1].split() for line in capsys.readouterr().out.splitlines()[4:6]] == [
        ["2,181", "│", "a", "│", "-"],
        ["-", "│", "bb", "│", "-"],
    ]
    print_table("", ("port",), [(2181,), (None,)])
    assert "│     - │" in capsys.readouterr().out


def test_counts_have_their_word() -> None:
    counts = [counted(number, "entry", "entries") for number in (0, 1, 1_024)]
    assert counts == ["0 entries", "1 entry", "1,024 entries"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"", ""), (b"a\tb", "a\tb"), (b"\x1b[2J", r"b'\x1b[2J'"), (b"\xff", r"b'\xff'"), (None, "")],
)
def test_bytes_are_shown_as_text_where_no_terminal_obeys_it(
    value: bytes | None, shown: str
) -> None:
    assert shown_cell(value) == shown


def test_members_of_a_cluster_are_named_below_its_directory(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    upkeep = Member(role="upkeep", id="upkeep", directory=str(tmp_path / "upkeep"))
    assert _row(cluster, upkeep) == ("upkeep", "upkeep", None, "0", "down", "upkeep")
    moved = Member(role="bookie", id="bookie-0", directory="/elsewhere", port=3181)
    assert _row(cluster, moved)[2::3] == ("3181", "/elsewhere")


def test_terminal_of_80_columns_shows_a_cluster_in_one_line_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "console", Console(width=80, markup=False))
    cluster = Cluster(tmp_path / ("long" * 20))
    member = Member(
        role="zookeeper", id="zookeeper", directory=str(cluster.directory / "zookeeper"), port=2181
    )
    print_table("", ("role", "id", "port", "pid", "state", "directory"), [_row(cluster, member)])
    assert len(capsys.readouterr().out.splitlines()) == len(["title", "┏", "┃", "┡", "│", "└"])
