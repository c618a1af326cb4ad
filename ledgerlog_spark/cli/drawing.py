"""Draws a log or a ledger in the terminal.

The picture shows which bookies have the entries of each fragment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Group
from rich.text import Text

from ledgerlog_spark.cli.output import console, counted
from ledgerlog_spark.model import Fragment

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a picture."""

    held: str
    lost: str  # the bookie had the entries, but was killed or is away
    elsewhere: str
    change: str


BLOCKS = Marks("█", "░", "·", "▲")
ASCII = Marks("#", "x", ".", "^")


@dataclass(frozen=True, slots=True)
class DrawnLedger:
    """One ledger of the picture. `label` is the text above the drawing of the ledger."""

    ledger_id: int
    fragments: tuple[Fragment, ...]
    entries: int
    label: str = ""


def draw_ledgers(
    ledgers: Sequence[DrawnLedger],
    *,
    bookies: Sequence[str],
    killed: Collection[str] = (),
    away: Collection[str] = (),
    width: int = 100,
    marks: Marks | None = None,
) -> Group:
    """Draw a block for each ledger, with a row for each bookie.

    Each column stands for one or more consecutive entries.

    A coloured cell means that the bookie has the entries. A hatched red cell means that the bookie
    had the entries and was killed, or is not registered now (`away`). A mark below a column shows
    the start of a new fragment: the later entries are on other bookies, or an absent bookie
    came back.

    If `marks` is None, the picture has block characters, or ASCII characters if the output does not
    support block characters.
    """
    marks = marks or (ASCII if console.options.ascii_only else BLOCKS)
    names = max([len(b) for b in bookies] + [8]) + 2
    columns = max(20, width - names - 12)
    lines: list[Text] = []
    missing = {**dict.fromkeys(away, "away"), **dict.fromkeys(killed, "killed")}
    for ledger in ledgers:
        lines += _ledger_lines(ledger, bookies, missing, names, columns, marks)
        lines.append(Text())
    return Group(*lines)


def _ledger_lines(
    ledger: DrawnLedger,
    bookies: Sequence[str],
    missing: Mapping[str, str],  # maps a bookie to the reason why it does not serve its copies
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
        line = Text(f"{bookie:<{names}}", style="bold red" if bookie in missing else "")
        for number in owners:
            held = bookie in ledger.fragments[number].ensemble
            if not held:
                line.append(marks.elsewhere, style="dim")
            elif bookie in missing:
                line.append(marks.lost, style="red")
            else:
                line.append(marks.held, style=COLOURS[number % len(COLOURS)])
        line.append(f"  {missing[bookie]}" if bookie in missing else "", style="bold red")
        lines.append(line)
    changes = Text(" " * names)
    for before, after in zip([0, *owners], owners, strict=False):
        changes.append(marks.change if before != after else " ", style="bold")
    if changes.plain.strip():
        lines.append(changes)
        lines += [Text(" " * names + line, style="dim") for line in _changes(ledger.fragments)]
    return lines


def _changes(fragments: Sequence[Fragment]) -> list[str]:
    """Return texts about the starts of fragments: other bookies, or an absent bookie came back."""
    ids: dict[str, list[str]] = {"ensemble change": [], "bookie back": []}
    for before, after in pairwise(fragments):
        why = "bookie back" if before.ensemble == after.ensemble else "ensemble change"
        ids[why].append(f"{after.first_entry_id:,}")
    return [f"{why} at entry {', '.join(firsts)}" for why, firsts in ids.items() if firsts]
