from __future__ import annotations

from rich.console import Console

from ledgerlog_spark.cli.drawing import DrawnLedger, draw_ledgers
from ledgerlog_spark.model import Fragment

BOOKIES = ("b0", "b1", "b2", "b3")
CHANGED = (Fragment(0, ("b0", "b1", "b2")), Fragment(5, ("b0", "b3", "b2")))


def drawn(
    ledger: DrawnLedger,
    *,
    killed: tuple[str, ...] = (),
    away: tuple[str, ...] = (),
    width: int = 60,
) -> list[str]:
    console = Console(width=width, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as captured:
        console.print(
            draw_ledgers([ledger], bookies=BOOKIES, killed=killed, away=away, width=width)
        )
    return [line.rstrip() for line in captured.get().splitlines()]


def test_picture_has_a_row_for_each_bookie_and_a_column_for_each_entry() -> None:
    lines = drawn(DrawnLedger(7, CHANGED, 10, "ten"), killed=("b1",))
    assert lines[0] == "ledger 7  10 entries  ten"
    assert lines[1:5] == [
        "b0        ██████████",
        "b1        ░░░░░·····  killed",
        "b2        ██████████",
        "b3        ·····█████",
    ]
    assert lines[5].index("▲") == 15
    assert lines[6].strip() == "ensemble change at entry 5"


def test_long_ledger_is_drawn_within_the_width() -> None:
    lines = drawn(DrawnLedger(7, CHANGED, 1_000_000), width=60)
    assert max(map(len, lines)) <= 60
    assert lines[4].count("·") == 1  # the first 5 of a million entries
    assert "▲" in lines[5]


def test_ledger_without_confirmed_entries_says_so() -> None:
    lines = drawn(DrawnLedger(7, CHANGED[:1], 0))
    assert lines[1].strip() == "no confirmed entry yet"


def test_picture_shows_which_bookie_is_away_and_where_one_came_back() -> None:
    same = Fragment(8, CHANGED[1].ensemble)
    lines = drawn(DrawnLedger(7, (*CHANGED, same), 10), away=("b0",))
    assert lines[1] == "b0        ░░░░░░░░░░  away"
    assert [i - 10 for i, mark in enumerate(lines[5]) if mark == "▲"] == [5, 8]
    assert [line.strip() for line in lines[6:8]] == [
        "ensemble change at entry 5",
        "bookie back at entry 8",
    ]
