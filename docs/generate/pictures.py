"""Draws the pictures of the pages: `python -m docs.generate.pictures` writes docs/pictures/*.svg.

Text and lines have the colour of the page's text, even after a switch between the light and the
dark style.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "pictures"

STYLE = """\
<style>
.ll-ink { fill: var(--md-default-fg-color, #24292f) }
.ll-soft { fill: var(--md-default-fg-color--light, #57606a) }
.ll-line { stroke: var(--md-default-fg-color--light, #57606a); fill: none; stroke-width: 1.5 }
.ll-box { fill: none; stroke: var(--md-default-fg-color--light, #57606a); stroke-width: 1.5 }
.ll-first { fill: #4c6ef5 } .ll-second { fill: #12a67c } .ll-third { fill: #e8890c } .ll-dead { fill: url(#ll-hatch) }
.ll-cross { stroke: #e03131; stroke-width: 3; stroke-linecap: round } .ll-alarm { fill: #e03131 }
.ll-white { fill: #fff }
@media (prefers-color-scheme: dark) {
  .ll-ink { fill: var(--md-default-fg-color, #e6edf3) }
  .ll-soft { fill: var(--md-default-fg-color--light, #9da7b3) }
  .ll-line, .ll-box { stroke: var(--md-default-fg-color--light, #9da7b3) }
}
svg.ll text { font: 14px ui-sans-serif, system-ui, sans-serif }
.ll text.ll-small { font-size: 12px } .ll text.ll-bold { font-weight: 600 }
</style>
<defs>
<pattern id="ll-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="#4c6ef5" opacity="0.25"/>
<rect width="2" height="6" fill="#4c6ef5" opacity="0.7"/></pattern>
<marker id="ll-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="ll-ink" d="M0 0 L8 4 L0 8 z"/></marker>
</defs>
"""


def classes(style: str) -> str:
    """Return the CSS classes of these styles. A prefix separates them from those of the page."""
    return " ".join(f"ll-{name}" for name in style.split())


def text(x: float, y: float, words: str, style: str = "ink", anchor: str = "start") -> str:
    """Return one line of text. The base line of the text is at (x, y)."""
    return f'<text x="{x:g}" y="{y:g}" class="{classes(style)}" text-anchor="{anchor}">{words}</text>\n'


def box(
    x: float, y: float, width: float, height: float, style: str = "box", radius: int = 6
) -> str:
    """Return a rectangle with rounded corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
        f'class="{classes(style)}"/>\n'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line with an arrowhead at its end."""
    return (
        f'<path class="ll-line" d="M{x1:g} {y1:g} L{x2:g} {y2:g}" marker-end="url(#ll-arrow)"/>\n'
    )


def picture(width: int, height: int, label: str, *parts: str) -> str:
    """Return a picture with these parts. Screen readers read the label."""
    return (
        f'<svg class="ll" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="{label}">\n{STYLE}{"".join(parts)}</svg>\n'
    )


CELL = 34
ENTRIES = 14
KILLED_AT = 7


def killed_bookie() -> str:
    """Draw four bookies and their entries. One bookie is killed between two entries."""
    left, top, gap = 150, 46, 44
    held = [
        (0, range(ENTRIES), range(0)),
        (1, range(0), range(KILLED_AT)),
        (2, range(ENTRIES), range(0)),
        (3, range(KILLED_AT, ENTRIES), range(0)),
    ]
    parts = [text(left, 24, "entries of one ledger, in the order of the appends", "soft small")]
    for bookie, alive, dead in held:
        y = top + bookie * gap
        parts.append(text(left - 16, y + 21, f"bookie-{bookie}", "ink bold", "end"))
        for entry in (*alive, *dead):
            style = "dead" if entry in dead else "first" if entry < KILLED_AT else "second"
            x = left + entry * CELL
            parts.append(box(x, y, CELL - 4, 30, style, 4))
            if style != "dead":
                parts.append(text(x + (CELL - 4) / 2, y + 20, str(entry), "white small", "middle"))
    x, y = left + KILLED_AT * CELL + 8, top + gap
    parts += [
        f'<path class="ll-cross" d="M{x} {y + 5} l20 20 m0 -20 l-20 20"/>\n',
        text(x + 32, y + 20, "killed with SIGKILL", "alarm bold"),
    ]
    end, bottom = left + ENTRIES * CELL, top + 4 * gap
    middle = left + KILLED_AT * CELL - 2
    parts += [
        f'<path class="ll-line" d="M{left} {bottom} V{bottom + 8} H{middle - 4} V{bottom}"/>\n',
        f'<path class="ll-line" d="M{middle + 2} {bottom} V{bottom + 8} H{end - 4} V{bottom}"/>\n',
        text((left + middle) / 2, bottom + 26, "held by 0, 1 and 2", "ink", "middle"),
        text((middle + end) / 2, bottom + 26, "held by 0, 3 and 2", "ink", "middle"),
        text(
            left,
            bottom + 54,
            "Each entry is acknowledged when two of its three bookies have it on disk. The writer",
            "soft small",
        ),
        text(
            left,
            bottom + 71,
            "replaces the bookie that died, and no acknowledged entry is lost.",
            "soft small",
        ),
    ]
    return picture(660, bottom + 84, "A writer replaces a killed bookie", *parts)


def overview() -> str:
    """Draw programs, bookies and ZooKeeper, and the data that they exchange."""
    parts = [
        box(20, 20, 200, 132),
        text(120, 48, "your programs", "ink bold", "middle"),
        text(120, 74, "Spark jobs and streams", "ink", "middle"),
        text(120, 96, "Python programs", "ink", "middle"),
        text(120, 118, "the command ledgerlog", "ink", "middle"),
        text(120, 140, "each contains the client", "soft small", "middle"),
    ]
    for bookie in range(4):
        y = 12 + bookie * 38
        parts += [
            box(470, y, 130, 30, "first"),
            text(535, y + 20, f"bookie-{bookie}", "white bold", "middle"),
        ]
        parts.append(arrow(222, 70, 466, y + 15))
    parts += [
        text(345, 30, "entries, to three at once", "ink", "middle"),
        text(535, 178, "store entries, sync, answer", "soft small", "middle"),
        box(20, 206, 200, 62),
        text(120, 232, "ledgerlog upkeep", "ink bold", "middle"),
        text(120, 254, "deletes and merges", "soft small", "middle"),
        box(470, 206, 130, 62),
        text(535, 232, "ZooKeeper", "ink bold", "middle"),
        text(535, 254, "names and lists", "soft small", "middle"),
        arrow(222, 132, 466, 222),
        arrow(222, 240, 466, 240),
        text(345, 262, "metadata, no entries", "ink", "middle"),
    ]
    return picture(
        630, 290, "Programs send entries to bookies and keep metadata in ZooKeeper", *parts
    )


def log_of_ledgers() -> str:
    """Draw a log as a list of ranges of ledgers, each of which is on three bookies."""
    ledgers = (
        ("ledger 7", 0, 4, "first"),
        ("ledger 9", 4, 3, "second"),
        ("ledger 12", 7, 5, "third"),
    )
    left, unit = 110, 42
    parts = [
        text(left - 14, 56, "log", "ink bold", "end"),
        box(left - 6, 30, 12 * unit + 10, 44),
        text(left, 20, "offsets of records", "soft small"),
    ]
    for name, first, count, style in ledgers:
        x, width = left + first * unit, count * unit - 4
        parts += [
            box(x, 36, width, 32, style, 4),
            text(x + width / 2, 57, f"{first} to {first + count - 1}", "white", "middle"),
            arrow(x + width / 2, 76, x + width / 2, 106),
            box(x, 110, width, 32, style, 4),
            text(x + width / 2, 131, name, "white bold", "middle"),
        ]
    parts.append(text(left - 14, 131, "ledgers", "ink bold", "end"))
    ensembles = ((0, 1, 2), (1, 2, 3), (0, 2, 3))
    for (_, first, count, style), ensemble in zip(ledgers, ensembles, strict=True):
        for bookie in ensemble:
            parts.append(
                box(left + first * unit, 164 + 26 * bookie, count * unit - 4, 18, style, 3)
            )
    parts += [
        text(left - 14, 178 + 26 * bookie, f"bookie-{bookie}", "ink", "end") for bookie in range(4)
    ]
    return picture(
        640, 280, "A log lists ranges of ledgers, each of which is on three bookies", *parts
    )


PICTURES = {
    "killed-bookie.svg": killed_bookie,
    "log.svg": log_of_ledgers,
    "overview.svg": overview,
}
"""Name of each file in docs/pictures, and the function that draws the picture."""


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())
