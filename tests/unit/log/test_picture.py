"""Logs as pictures (ledgerlog_spark.log.picture)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ledgerlog_spark.log.picture import PicturedLedger, drawn, picture_of
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from tests.unit.log.log_world import LogWorld, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

SVG = "{http://www.w3.org/2000/svg}"
FIRST = PicturedLedger(7, (Fragment(0, ("b1", "b2")), Fragment(30, ("b1", "b3"))), 40, 400)
SECOND = PicturedLedger(9, (Fragment(0, ("b1", "b3")),), 10, 100)


def bars(svg: str) -> list[tuple[str, str, float]]:
    """Tooltip, fill and width of each bar."""
    found = []
    for bar in ET.fromstring(svg).findall(f"{SVG}rect"):
        about = bar.find(f"{SVG}title")
        assert about is not None
        found.append((str(about.text), bar.attrib["fill"], float(bar.attrib["width"])))
    return found


def texts(svg: str) -> list[str]:
    return [str(text.text) for text in ET.fromstring(svg).findall(f"{SVG}text")]


def test_a_bar_stands_where_a_bookie_holds_the_entries_of_a_fragment() -> None:
    found = bars(drawn("flights", [FIRST, SECOND], ["b1", "b2", "b3"], ()))
    assert [about for about, _, _ in found] == [
        *["ledger 7, entries 0 to 29: b1, b2"] * 2,
        *["ledger 7, entries 30 to 39: b1, b3"] * 2,
        *["ledger 9, entries 0 to 9: b1, b3"] * 2,
    ]
    assert len({fill for _, fill, _ in found}) == 3
    widths = [width for _, _, width in found]
    assert abs(widths[0] - 3 * widths[2]) < 0.5
    assert abs(widths[2] - widths[4]) < 0.5


def test_a_bookie_that_is_gone_is_marked() -> None:
    svg = drawn("flights", [FIRST, SECOND], ["b1", "b2", "b3"], {"b2"})
    assert [fill == "url(#gone)" for _, fill, _ in bars(svg)] == [False, True] + [False] * 4
    assert "b2 ✕" in texts(svg)


def test_fragments_behind_what_is_listed_are_left_out() -> None:
    cut = PicturedLedger(7, FIRST.fragments, 20, 200)
    assert len(bars(drawn("flights", [cut], ["b1", "b2", "b3"], ()))) == 2


def test_an_empty_log_is_a_picture_too() -> None:
    empty: Sequence[PicturedLedger] = ()
    assert texts(drawn("a<b", empty, ["b1"], ()))[0] == "log a<b: 0 rows in 0 ledgers"


async def test_the_picture_of_a_log_shows_its_ledgers_and_the_bookie_that_left(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    client = world.client()
    items = (await log.snapshot()).items
    left = (await client.ledger_metadata(items[0].ledger_id)).last_fragment.ensemble[0]
    before = bars((await picture_of(log, client)).svg)
    assert [fill == "url(#gone)" for _, fill, _ in before].count(True) == 0
    await world.kill(left)
    after = (await picture_of(log, client))._repr_svg_()
    assert [fill == "url(#gone)" for _, fill, _ in bars(after)].count(True) == len(items)
    assert f"{left} ✕" in texts(after)


def test_a_ledgers_record_shows_its_fragments() -> None:
    record = LedgerMetadata(Quorum(2, 2, 1), FIRST.fragments, LedgerState.OPEN)
    assert "<td>30</td><td>b1, b3</td>" in record._repr_html_()
    assert "ledger</b>, open, 2 copies" in record._repr_html_()
    assert "closed, 40 entries, 4,000 bytes" in (
        record.closed(last_entry_id=39, length=4_000)._repr_html_()
    )
