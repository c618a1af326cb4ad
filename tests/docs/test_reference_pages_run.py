"""The Python of the pages about Spark, streams and logs runs, in one cluster and session."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.docs.blocks import Block, blocks_of
from tests.docs.pages import PAGES, by_name
from tests.docs.reader import Reader
from tests.fixtures.command_line import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFERENCE = [ROOT / "docs" / name for name in ("LOGS.md", "SPARK.md", "STREAMING.md")]
NOTEBOOKS = ROOT / "docs" / "tutorials"

CLUSTER = (
    "ledgerlog local up --detach --bookies 3 --no-upkeep\n",
    f"export {SERVICE_URI_VARIABLE}=zk://127.0.0.1:2181/ledgers\n",
)
SESSION = """
    from pyspark.sql import SparkSession
    import ledgerlog_spark as ll

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ll.configure(ll.configure(builder).getOrCreate())
    df = spark.range(200).selectExpr("id", "id AS delay")

    def rows(log):
        return spark.read.format("ledger").load(log)
"""
ENDS = {
    "LOGS.md": """
        assert (position.offset, positions.offsets) == (0, range(2))
        assert batch.rows.to_pylist() == [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]
    """,
    "SPARK.md": """
        assert rows("flights").count() >= 400
    """,
    "STREAMING.md": """
        query.processAllAvailable()
        query.stop()
        assert rows("copy").count() == rows("flights").count()
        before = rows("flights").count()
        for _ in range(2):
            write(df, 7)
            assert rows("flights").count() == before + 200
            assert rows("late_flights").count() == 139
    """,
}
"""The conditions after the last block of each page."""


def blocks_for(page: Path) -> list[Block]:
    """The blocks of a page that run, and the check at its end."""
    end = Block("python", dedent(ENDS[page.name]), 0)
    return [*(block for block in blocks_of(page) if not block.reason), end]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader with a cluster, a session and a log `flights`."""
    with Reader(tmp_path_factory.mktemp("pages")) as reader:
        for code in CLUSTER:
            reader.run(Block("bash", code, 0))
        reader.run(Block("python", dedent(SESSION), 0))
        reader.run(Block("python", 'df.write.format("ledger").mode("append").save("flights")\n', 0))
        yield reader


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.processes
@pytest.mark.parametrize("page", REFERENCE, ids=by_name)
def test_python_of_a_page_does_what_it_says(reader: Reader, page: Path) -> None:
    for block in blocks_for(page):
        reader.run(block)


def test_every_block_of_the_documentation_is_run_or_has_a_reason() -> None:
    """The blocks of notebooks are run as notebooks."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    with_blocks = {page for page in pages if any(not block.reason for block in blocks_of(page))}
    elsewhere = {page for page in with_blocks if page.parent == NOTEBOOKS}
    assert sorted(with_blocks - elsewhere - {*PAGES, *REFERENCE}) == []
    assert set(REFERENCE) <= with_blocks
