"""Draws a log or a ledger in the terminal.

The picture shows which bookies have the entries of each fragment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from ledgerlog_spark.cli.output import console, counted
from ledgerlog_spark.model import Fragment

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a picture. `change` marks an ensemble change."""

    held: str
    lost: str  # the bookie had the entries and was killed
    elsewhere: str
    change: str


BLOCKS = Marks("█", "░", "·", "▲")
ASCII = Marks("#", "x", ".", "^")


@dataclass(frozen=True, slots=True)
class DrawnLedger:
    """One ledger of the picture. `label` is the text above the ledger."""

    ledger_id: int
    fragments: tuple[Fragment, ...]
    entries: int
    label: str = ""


def draw_ledgers(
    ledgers: Sequence[DrawnLedger],
    *,
    bookies: Sequence[str],
    killed: Collection[str] = (),
    width: int = 100,
    marks: Marks | None = None,
) -> Group:
    """Draw a block for each ledger, with a row for each bookie.

    Each column stands for one or more consecutive entries.

    A coloured cell means that the bookie has the entries. A hatched red cell means that the bookie
    had the entries and was killed. A mark below a column shows an ensemble change: the later
    entries are on other bookies.

    If `marks` is None, the picture has block characters, or ASCII characters if the output does not
    support block characters.
    """
    marks = marks or (ASCII if console.options.ascii_only else BLOCKS)
    names = max([len(b) for b in bookies] + [8]) + 2
    columns = max(20, width - names - 12)
    lines: list[Text] = []
    for ledger in ledgers:
        lines += _ledger_lines(ledger, bookies, killed, names, columns, marks)
        lines.append(Text())
    return Group(*lines)


def _ledger_lines(
    ledger: DrawnLedger,
    bookies: Sequence[str],
    killed: Collection[str],
    names: int,
    columns: int,
    marks: Marks,
) -> list[Text]:
    cells = min(columns, max(ledger.entries, 1))
    lines = [
        Text(f"ledger {ledger.ledger_id}  ", style="bold").append(
            f"{counted(ledger.entries, 'entry', 'entries')}  {ledger.label}", style="dim"
        )
    ]
    if not ledger.entries:
        return [*lines, Text(" " * names + "no confirmed entry yet", style="dim")]
    firsts = [fragment.first_entry_id for fragment in ledger.fragments]
    owners = [max(0, bisect_right(firsts, n * ledger.entries // cells) - 1) for n in range(cells)]
    for bookie in bookies:
        line = Text(f"{bookie:<{names}}", style="bold red" if bookie in killed else "")
        for number in owners:
            held = bookie in ledger.fragments[number].ensemble
            if not held:
                line.append(marks.elsewhere, style="dim")
            elif bookie in killed:
                line.append(marks.lost, style="red")
            else:
                line.append(marks.held, style=COLOURS[number % len(COLOURS)])
        line.append("  killed" if bookie in killed else "", style="bold red")
        lines.append(line)
    changes = Text(" " * names)
    for before, after in zip([0, *owners], owners, strict=False):
        changes.append(marks.change if before != after else " ", style="bold")
    if changes.plain.strip():
        ids = ", ".join(f"{first:,}" for first in firsts[1:])
        lines.append(changes)
        lines.append(Text(" " * names + f"ensemble change at entry {ids}", style="dim"))
    return lines
