"""README and the how-to pages are true: their commands run, with the output in the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from bookie_server.config import BookieSettings
from docs.generate.metrics import descriptions, sample_name
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.docs.blocks import Block, blocks_of, missing_line
from tests.docs.pages import PAGES, README, RUN, WITH_SPARK, blocks_to_run, by_name, run
from tests.docs.reader import Reader, java_options

README_LINES_MAX = 120
NOT_RUN = {
    "README.md": 1,
    "databricks.md": 1,
    "directories.md": 4,
    "catalog.md": 1,
    "jvm.md": 4,
    "kubernetes.md": 1,
    "limbo.md": 2,
    "out-of-service.md": 2,
    "three-machines.md": 1,
    "write-modes.md": 1,
    "yarn.md": 2,
}
"""Blocks that cannot run here, for each page; the pages give the reasons."""


@pytest.mark.zookeeper
@pytest.mark.processes
@pytest.mark.parametrize("page", [page for page in RUN if page not in WITH_SPARK], ids=by_name)
def test_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) < README_LINES_MAX


def test_blocks_that_cannot_run_are_known() -> None:
    counts = {page.name: sum(bool(block.reason) for block in blocks_of(page)) for page in PAGES}
    assert {name: count for name, count in counts.items() if count} == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_python_of_a_page_names_its_cluster(page: Path) -> None:
    """Otherwise it may use the cluster of another test, which may have the usual port."""
    blocks = blocks_to_run(page)
    if any(f"export {SERVICE_URI_VARIABLE}=" in block.code for block in blocks):
        return
    code = [block.code for block in blocks if block.language == "python"]
    assert [
        found for text in code for found in re.findall(r"\bll\.connect\((?![\"u]).*", text)
    ] == []


CONFIGURATION = re.compile(r"^```(yaml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_configuration_in_a_page_can_be_parsed(page: Path) -> None:
    for language, text in CONFIGURATION.findall(page.read_text()):
        found = list(yaml.safe_load_all(text)) if language == "yaml" else [json.loads(text)]
        assert all(isinstance(each, dict) for each in found), text


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_variables_and_metrics_in_a_page_exist(page: Path) -> None:
    text = page.read_text()
    settings = set(re.findall(r"\bLEDGERLOG_([A-Z_]+)", text))
    assert settings - {name.upper() for name in BookieSettings.model_fields} == set()
    alarms = re.findall(
        r"^\| `(.*?)` \|", text.partition("Set an alarm for these conditions")[2], re.MULTILINE
    )
    names = {name for each in alarms for name in re.findall(r"[a-z]\w+_\w+|^\w+", each)}
    assert names - {"rate"} <= {sample_name(metric) for metric in descriptions()}
    assert bool(names) == (page.name == "metrics.md")


PAGE = """\
```bash
echo one
```

```text
one
```

<!-- not run: needs a cluster -->
```bash
kubectl apply
```

<!-- own terminal until: ready -->
```bash
serve
```

```toml
a = 1
```

```python
x
```
"""


def test_blocks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert blocks_of(page) == [
        Block("bash", "echo one\n", 2, output=("one",)),
        Block("bash", "kubectl apply\n", 11, reason="needs a cluster"),
        Block("bash", "serve\n", 16, until="ready"),
        Block("python", "x\n", 24),
    ]


@pytest.mark.parametrize(
    ("expected", "missing"),
    [
        (("one", "three"), None),
        (("o...", "...ee"), None),
        (("three", "one"), "one"),
        (("two",), "two"),
    ],
)
def test_output_has_the_lines_of_the_page_in_their_order(
    expected: tuple[str, ...], missing: str | None
) -> None:
    assert missing_line(expected, "zero\n one\n2\nthree\n") == missing


def test_java_options_are_right_in_a_path_with_a_space() -> None:
    logging = java_options(Path("/a clone/log4j2.properties")).split()[-1]
    assert logging == "-Dlog4j2.configurationFile=file:///a%20clone/log4j2.properties"


def test_a_block_that_fails_fails_with_its_line(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.run(Block("bash", "export LEDGERLOG_X=1; x=2\n", 1))
        reader.run(Block("bash", "echo $LEDGERLOG_X $x\n", 2, output=("1 2",)))
        reader.run(
            Block("python", "import os\nprint(os.environ['LEDGERLOG_X'])\n", 3, output=("1",))
        )
        with pytest.raises(AssertionError, match="line 4"):
            reader.run(Block("bash", "false\necho on\n", 4))
        with pytest.raises(AssertionError, match="line 5"):
            reader.run(Block("python", "raise SystemExit(1)\n", 5))
