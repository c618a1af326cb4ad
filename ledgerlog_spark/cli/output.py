"""What commands print: tables for people, JSON for scripts; and the options they share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
ServiceUri = Annotated[
    str,
    typer.Option(
        "--metadata-service-uri",
        "-u",
        envvar="LEDGERLOG_METADATA_SERVICE_URI",
        help="Where the cluster's ZooKeeper is.",
        metavar="zk://HOST:PORT/ledgers",
    ),
]
DEFAULT_URI = "zk://localhost:2181/ledgers"

console = Console()


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table whose columns of numbers are aligned to the right."""
    cells = [[_shown(value) for value in row] for row in rows]
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        is_number = bool(cells) and all(
            row[number].replace(",", "").replace(".", "").lstrip("-").isdigit() for row in cells
        )
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def print_fields(title: str, fields: Mapping[str, object]) -> None:
    """Names and values, one pair a line."""
    print_table(title, ("", ""), fields.items())


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)
