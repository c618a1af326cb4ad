"""The figures as a table for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

COLUMNS = ("files", "lines", "code", "docstring", "blank", "comment", "imports")


def folder_table(figures: dict[str, Any]) -> Table:
    table = Table(*("", *COLUMNS, "modules", "among them"), box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in figures["folders"].items():
        counted = [row[key] for key in (*COLUMNS, "modules", "imports_within")]
        table.add_row(name, *(f"{each:,}" for each in counted))
    table.add_section()
    totals = {
        "the log layer": "log_layer",
        "  without its stores": "log_layer_above_stores",
        "both packages": "total",
    }
    for title, key in totals.items():
        table.add_row(title, *(f"{figures[key][column]:,}" for column in COLUMNS))
    return table


def other_table(figures: dict[str, Any]) -> Table:
    append = figures["append"]
    moved = append.get("error") or (
        f"{append['moves']} ({append['calls']} calls, {append['functions']} functions, "
        f"{append['files']} files)"
    )
    rows = {
        "modules of folders with more than 20": figures["modules_of_large_folders"],
        "files under 40 lines": f"{len(figures['small_files'])}, and "
        f"{figures['small_packages']} `__init__.py`",
        "uses of `Any`": f"{figures['any']} (the word: {figures['any_words']})",
        "import circles": f"{len(figures['circles'])}, at run time "
        f"{len(figures['circles_at_run_time'])}",
        **{f"  circle {n}": ", ".join(c) for n, c in enumerate(figures["circles"], 1)},
        "moves of an append": moved,
        "cases of tests/architecture": figures["architecture_cases"],
        **{f"tic {name}": count for name, count in figures["tics"].items()},
        "tics": sum(figures["tics"].values()),
    }
    table = Table("", "", box=box.SIMPLE, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def summary(figures: dict[str, Any]) -> str:
    total, log = figures["total"], figures["log_layer"]
    return (
        f"{total['files']} files, {total['lines']:,} lines; log layer {log['files']} files, "
        f"{log['lines']:,} lines; {figures['append'].get('moves', 'no')} moves of an append; "
        f"{len(figures['circles'])} import circles; {figures['architecture_cases']} architecture "
        f"cases; {sum(figures['tics'].values()):,} tics"
    )
