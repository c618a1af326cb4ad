"""The table of options in docs/SPARK.md is the same as in the code."""

from __future__ import annotations

from pathlib import Path

from ledgerlog_spark.datasource.options.table import Option
from ledgerlog_spark.datasource.options.values import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "SPARK.md"


def line(option: Option) -> str:
    default = "" if option.default is None else f"`{option.default}`".lower()
    return (
        f"| `{option.name}` | {option.use.value} | {default} | {option.unit} | {option.meaning} |"
    )


def test_every_option_is_documented_with_its_default_and_unit() -> None:
    documented = [row for row in PAGE.read_text().splitlines() if row.startswith("| `")]
    assert documented == [line(option) for option in TABLE]
