"""Draws a picture of a log for notebooks. It shows the fragments that each bookie stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.model import Fragment
from ledgerlog_spark.protocol.log.state.records import LogSnapshot

COLOURS = ("#2a9d8f", "#457b9d", "#8d6a9f", "#bc8034", "#5f7f4e", "#3d6b8c")
GONE_COLOUR = "#d62828"
LEDGERS_MAX = 200
"""Maximum number of ledgers in the picture.

If a log has more ledgers, the picture shows only the newest ledgers.
"""

_WIDTH, _ROW, _GAP, _TOP, _BAR_MIN = 900, 26, 6, 40, 2.0
_CHARACTER = 7.5
_SMALL = 'fill="#777" font-size="11"'
_LEGEND = "entries, oldest first; a new colour is an ensemble change or another ledger"
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'height="{height}" font-family="sans-serif" font-size="13"><defs><pattern id="gone" width="6" '
    'height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" '
    'height="6" fill="#fbe4e4"/><rect width="2.5" height="6" fill="'
    + GONE_COLOUR
    + '"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class PicturedLedger:
    """The data of one ledger in the picture.

    `fragments` is empty if the ledger was deleted. `entries` is the number of entries up to the
    last listed entry.
    """

    ledger_id: int
    fragments: tuple[Fragment, ...]
    entries: int
    rows: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that notebooks show.

    Attributes:
        svg: The picture as SVG text.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


async def picture_of(log: Log, client: LedgerClient, *, gone: Collection[str] = ()) -> Picture:
    """Draw the newest version of a log, with one line for each bookie.

    In the line of a bookie, a bar in the colour of the fragment shows the entries that the bookie
    has. Bookies that are not registered, and bookies in `gone`, are hatched in red.
    """
    snapshot = await log.snapshot()
    ledgers = [ledger async for ledger in _pictured(snapshot, client)]
    registration = client.services.registration
    registered = {*await registration.writable(), *await registration.read_only()}
    named = {b for ledger in ledgers for f in ledger.fragments for b in f.ensemble}
    bookies = sorted(registered | named)
    return Picture(drawn(snapshot.name, ledgers, bookies, {*gone, *(named - registered)}))


async def _pictured(snapshot: LogSnapshot, client: LedgerClient) -> AsyncIterator[PicturedLedger]:
    ends: dict[int, int] = {}
    rows: dict[int, int] = {}
    for item in snapshot.items:
        ends[item.ledger_id] = max(ends.get(item.ledger_id, 0), item.last_entry_id + 1)
        rows[item.ledger_id] = rows.get(item.ledger_id, 0) + item.rows
    for ledger_id in list(ends)[-LEDGERS_MAX:]:
        try:
            fragments = (await client.ledger_metadata(ledger_id)).fragments
        except LedgerNotFoundError:
            fragments = ()
        yield PicturedLedger(ledger_id, fragments, ends[ledger_id], rows[ledger_id])


def drawn(
    name: str, ledgers: Sequence[PicturedLedger], bookies: Sequence[str], gone: Collection[str]
) -> str:
    """Draw the picture as SVG.

    The oldest ledger is on the left. Bookies in `gone` are drawn as lost.
    """
    left = 20 + _CHARACTER * max([len(bookie) for bookie in bookies] + [6])
    height = _TOP + len(bookies) * _ROW + 26
    rows = sum(ledger.rows for ledger in ledgers)
    title = f"log {name}: {rows:,} rows in {len(ledgers):,} ledgers"
    parts = [
        _HEAD.format(width=_WIDTH, height=height),
        f'<text x="4" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for place, bookie in enumerate(bookies):
        y = _TOP + place * _ROW + _ROW / 2 + 4
        mark = f' fill="{GONE_COLOUR}" font-weight="bold"' if bookie in gone else ""
        note = " ✕" if bookie in gone else ""
        parts.append(f'<text x="4" y="{y:.0f}"{mark}>{escape(bookie)}{note}</text>')
    parts += _strips(ledgers, bookies, gone, left)
    parts.append(f'<text x="{left:.0f}" y="{height - 8}" {_SMALL}>{_LEGEND}</text></svg>')
    return "".join(parts)


def _strips(
    ledgers: Sequence[PicturedLedger],
    bookies: Sequence[str],
    gone: Collection[str],
    left: float,
) -> Iterator[str]:
    """Yield the bars of all ledgers, side by side.

    The width of a bar shows the number of entries.
    """
    entries = max(1, sum(ledger.entries for ledger in ledgers))
    room = max(10.0, _WIDTH - left - 4 - _GAP * len(ledgers))
    x = left
    colour = 0
    for ledger in ledgers:
        width = max(_BAR_MIN, room * ledger.entries / entries)
        if width >= _CHARACTER * (len(str(ledger.ledger_id)) + 1):
            yield f'<text x="{x:.1f}" y="{_TOP - 6}" {_SMALL}>{ledger.ledger_id}</text>'
        ends = [fragment.first_entry_id for fragment in ledger.fragments[1:]] + [ledger.entries]
        for fragment, end in zip(ledger.fragments, ends, strict=True):
            first, behind = min(fragment.first_entry_id, ledger.entries), min(end, ledger.entries)
            if first >= behind:
                continue
            bar = x + width * first / ledger.entries, width * (behind - first) / ledger.entries
            about = (
                f"ledger {ledger.ledger_id}, entries {first:,} to {behind - 1:,}: "
                f"{', '.join(fragment.ensemble)}"
            )
            fill = COLOURS[colour % len(COLOURS)]
            colour += 1
            for place, bookie in enumerate(bookies):
                if bookie in fragment.ensemble:
                    yield _bar(*bar, place, "url(#gone)" if bookie in gone else fill, about)
        x += width + _GAP


def _bar(x: float, width: float, place: int, fill: str, about: str) -> str:
    y = _TOP + place * _ROW + 3
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" fill="{fill}">'
        f"<title>{escape(about)}</title></rect>"
    )
