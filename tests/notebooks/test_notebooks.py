"""Every notebook runs from top to bottom in its own kernel, and is stored without outputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.fixtures.java import OPTIONS_VARIABLE, quick_options

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
TIMEOUT_SECONDS = 300

WORKER = """\
#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -v 'pyspark[.]zip$' | paste -sd : -)
export PYTHONPATH
exec {python} "$@"
"""
"""Spark's Python processes import Spark from a zip file without compiled code, which takes four
times as long. This one imports the installed Spark. Spark gives the process of a stream's source 10
s to start."""

FEWER = {
    "02_streaming": (
        ("len(feed.recentProgress) >= 5", "len(feed.recentProgress) >= 2"),
        ("watch(pages, batches=6)", "watch(pages, batches=2)"),
        ("watch(pages, batches=10)", "watch(pages, batches=4)"),
    ),
    "03_kill_a_bookie": (
        ("range(0, 300_000, 1, 2)", "range(0, 150_000, 1, 2)"),
        ("(300_000, 0)", "(150_000, 0)"),
        ("last_add_confirmed >= 40", "last_add_confirmed >= 5"),
    ),
}
"""Texts of a notebook, and what runs instead: fewer batches to draw, fewer rows to compare, and an
earlier kill among these rows."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture
def quick_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's Python processes start quickly, because other tests keep the machine busy."""
    worker = tmp_path / "python"
    worker.write_text(WORKER.format(python=sys.executable))
    worker.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(worker))
    monkeypatch.setenv(OPTIONS_VARIABLE, quick_options())


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


@by_name
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert {cell.execution_count for cell in cells} == {None}


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.processes
@pytest.mark.usefixtures("quick_workers")
@by_name
def test_a_notebook_runs_top_to_bottom(path: Path, tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    shorten(path.stem, notebook)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in shown if output.output_type == "error"] == []
    assert any(_is_picture(output) for output in shown)


def shorten(name: str, notebook: Any) -> None:
    """Replace the texts in `FEWER`, each of which the notebook has once."""
    for text, fewer in FEWER.get(name, ()):
        (cell,) = (cell for cell in notebook.cells if text in cell.source)
        assert cell.source.count(text) == 1
        cell.source = cell.source.replace(text, fewer)


def _is_picture(output: Any) -> bool:
    data = output.get("data", {})
    return "image/svg+xml" in data or "image/png" in data or "<svg" in data.get("text/html", "")
