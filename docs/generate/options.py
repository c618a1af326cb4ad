"""Writes the reference of the options of `format("ledger")` from the table of the options."""

from __future__ import annotations

from docs.generate.markdown import code, table
from ledgerlog_spark.datasource.options.table import ALIASES, NEAREST, Use
from ledgerlog_spark.datasource.options.values import BY_LOWER_NAME, TABLE

INTRODUCTION = """\
# Options of format("ledger")

Names of options are not case-sensitive. An unknown option is an error, which suggests the most similar option.
`strictOptions=false` changes the error to a warning. Sizes can have a unit, such as `64m` and `1g`.
Durations and times can have the forms in the tables. [Logs in Spark](../SPARK.md) and [Streams](../STREAMING.md)
explain the use of the options.

"""

TITLES = {
    Use.BOTH: "Reads and writes",
    Use.READ: "All reads",
    Use.BATCH: "Batch reads",
    Use.STREAM: "Stream reads",
    Use.WRITE: "Writes",
}


def page() -> str:
    """Return the page about all options."""
    parts = [INTRODUCTION]
    for use, title in TITLES.items():
        rows = [
            (
                code(option.name),
                "" if option.default is None else f"`{option.default}`".lower(),
                option.unit,
                option.meaning,
            )
            for option in TABLE
            if option.use is use
        ]
        parts.append(f"## {title}\n\n{table(('option', 'default', 'unit', 'meaning'), rows)}\n")
    aliases = [(code(name), code(option)) for name, option in ALIASES.items()]
    nearest = [
        (code(name), code(BY_LOWER_NAME[option.lower()].name)) for name, option in NEAREST.items()
    ]
    parts.append(f"## Other accepted names\n\n{table(('name', 'is the option'), aliases)}\n")
    parts.append(
        "## Names of other sources\n\nThese names are errors. The message of the error suggests the "
        f"option on the right.\n\n{table(('name', 'suggested option'), nearest)}"
    )
    return "".join(parts)
