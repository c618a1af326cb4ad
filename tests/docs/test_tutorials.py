"""The pages of the notebooks show their code and the outputs of a run, without machine paths."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from docs.generate.tutorials import ALT, NOTEBOOKS, PAGES, Page, page_of
from tests.docs.blocks import blocks_of

SIZE_BYTES_MAX = 200_000
OWN = re.compile(r"/tmp/\w|/roo[t]|/home|[\w.-]+@[\w-]+|\b(?!127\.)\d+\.\d+\.\d+\.\d+\b")


def output(kind: str, data: dict[str, str] | None = None, **values: str) -> Any:
    return nbformat.v4.new_output(kind, data, **values)  # type: ignore[no-untyped-call]


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_page_has_the_code_and_the_words_of_its_notebook(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells  # type: ignore[no-untyped-call]
    page = page_of(notebook)
    code = [f"{cell.source}\n" for cell in cells if cell.cell_type == "code"]
    assert [block.code for block in blocks_of(page)] == code
    words = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert [text for text in words if text not in page.read_text()] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_page_shows_outputs_and_pictures(notebook: Path) -> None:
    page = page_of(notebook)
    text = page.read_text()
    assert "```text\n" in text
    shown = re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE)
    there = {path.name for path in PAGES.glob(f"{page.stem}-*")}
    assert set(shown) == there != set()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_pictures_have_the_texts_of_their_cells(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells  # type: ignore[no-untyped-call]
    texts = [cell.metadata[ALT] for cell in cells if ALT in cell.metadata]
    shown = re.findall(r"^!\[(.*)\]\(.*\)$", page_of(notebook).read_text(), re.MULTILINE)
    assert shown == texts
    assert len(set(texts)) == len(texts) > 0


def test_pages_are_small_and_have_nothing_of_the_machine_that_made_them() -> None:
    files = [path for path in PAGES.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < len(NOTEBOOKS) * SIZE_BYTES_MAX
    texts = [path for path in files if path.suffix in {".md", ".svg"}]
    assert {path.name: found for path in texts if (found := OWN.findall(path.read_text()))} == {}


def test_outputs_become_text_markup_and_pictures(tmp_path: Path) -> None:
    page = Page(tmp_path / "page.md", Path("01_page.ipynb"), {"/tmp/abc": "/here"})
    page.add(SimpleNamespace(cell_type="markdown", source="# Title"))
    outputs = [
        output("stream", name="stdout", text="\x1b[1mbold\x1b[0m /tmp/abc/x  \n"),
        output("stream", name="stderr", text="a warning\n"),
        output("display_data", {"text/html": "<b>\n\n</b><script>x</script>"}),
        output("display_data", {"text/html": "<svg></svg>"}),
        output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "Log"}),
        output("display_data", {"image/png": "AAEC", "text/plain": "Figure"}),
        output("execute_result", {"text/plain": "42"}),
    ]
    metadata = {ALT: "A bar for each range"}
    page.add(SimpleNamespace(cell_type="code", source="x", outputs=outputs, metadata=metadata))
    page.write()
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# Title\n\nThis page is `notebooks/01_page.ipynb`")
    shown = text.partition("```python\nx\n```\n\n")[2]
    assert shown == (
        "```text\nbold /here/x\n```\n\n"
        '<div class="output">\n<b>\n</b>\n</div>\n\n'
        "![A bar for each range](page-1.svg)\n\n"
        "![A bar for each range](page-2.svg)\n\n"
        "![A bar for each range](page-3.png)\n\n"
        "```text\n42\n```\n"
    )
    assert (tmp_path / "page-3.png").read_bytes() == b"\x00\x01\x02"
