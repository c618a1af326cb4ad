"""The pages whose commands start Spark: a file of its own, which another process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import WITH_SPARK, by_name, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.processes
@pytest.mark.parametrize("page", WITH_SPARK, ids=by_name)
def test_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)
