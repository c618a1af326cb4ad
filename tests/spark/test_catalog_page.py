"""The statements of docs/how-to/catalog.md run, and return the results that the page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docs.blocks import FENCED, missing_line
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "how-to" / "catalog.md"


def test_the_statements_of_the_page_return_what_it_shows(spark: SparkSession) -> None:
    blocks = [each for each in FENCED.finditer(PAGE.read_text()) if each["language"] == "sql"]
    assert len(blocks) == 5
    for block in blocks:
        shown = []
        for statement in filter(str.strip, block["code"].split(";\n")):
            frame = spark.sql(statement)
            shown.append(frame._show_string(100) if frame.columns else "")
        expected = tuple((block["output"] or "").splitlines())
        printed = "\n".join(shown)
        assert missing_line(expected, printed) is None, f"{statement}\n{printed}"
