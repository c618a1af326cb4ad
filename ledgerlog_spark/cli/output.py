"""The output of commands: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def json_lines(what: str) -> Any:
    """Return the option `--json` of a command that prints one JSON object for each `what`."""
    return typer.Option("--json", help=f"Print a JSON object for each {what}.")


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
WIDTH_WITHOUT_TERMINAL = 160
NOTHING = "-"

# A file or a pipe has no width, so without `width`, rich would fold all lines at 80 columns. Most
# of the output is data. So markup and emoji are off, and texts such as "[error]" and ":cat:" are
# printed as they are.
console = Console(
    width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, markup=False, emoji=False
)


def spinner() -> str:
    """Return the name of a spinner with characters that the terminal supports."""
    return "line" if console.options.ascii_only else "dots"


def print_json(value: Any) -> None:
    """Print a JSON value to standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_outcome(value: Any, text: str, *, as_json: bool) -> None:
    """Print the result of a command: `value` as JSON for scripts, otherwise the sentence `text`."""
    if as_json:
        print_json(value)
    else:
        console.print(text, soft_wrap=True)


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes `names` of an object, as a mapping for JSON."""
    return {name: getattr(value, name) for name in names}


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Columns of numbers are aligned to the right."""
    cells = [[_shown(value) for value in row] for row in rows]
    table = Table()
    for number, name in enumerate(columns):
        column = [row[number] for row in cells if row[number] != NOTHING]
        is_number = bool(column) and all(map(_is_number, column))
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    _print_titled(title, table)


def print_listing(
    found: Sequence[Mapping[str, Any]],
    row_of: Callable[[Any], Sequence[object]],
    *,
    title: str,
    columns: Sequence[str],
    as_json: bool,
) -> None:
    """Print a list: JSON for scripts, otherwise a table with a row for each element."""
    if as_json:
        print_json(found)
    else:
        print_table(title, columns, map(row_of, found))


def print_fields(title: str, fields: Mapping[str, object]) -> None:
    """Print names and values, one pair on each line."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, _shown(value))
    _print_titled(title, table)


def _print_titled(title: str, table: Table) -> None:
    # If rich printed the title, it would fold the title to the width of a narrow table.
    console.print(title, style="table.title", markup=False, highlight=False)
    console.print(table)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").lstrip("-").isdigit()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return NOTHING if value is None else str(value)


def counted(count: int, one: str, many: str) -> str:
    """Return the number with its noun, such as `1 entry` or `1,024 entries`."""
    return f"{count:,} {one if count == 1 else many}"
