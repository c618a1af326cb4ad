"""Executes the notebooks, and writes them with their outputs as pages: `make tutorials`.

This takes minutes and needs Java, so the pages are stored in docs/tutorials/. A test compares the
code of the pages with the code of the notebooks.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "tutorials"
TIMEOUT_SECONDS = 600
ALT = "alt"
"""Key in the metadata of a cell with a picture. The value of this key describes the picture."""

TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|.*\r(?!\n)")
SCRIPT = re.compile(r"<script.*?</script>", re.DOTALL)
EMPTY_LINES = re.compile(r"\n\s*\n+")


def page_of(notebook: Path) -> Path:
    """Return the path of a notebook's page: `streaming.md` for `02_streaming.ipynb`."""
    return PAGES / f"{notebook.stem.partition('_')[2]}.md"


def executed(path: Path, directory: Path) -> Any:
    """Run a notebook in this directory, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(
        notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources=resources
    ).execute()
    return notebook


class Page:
    """The page of a notebook with its pictures. The cells are added one by one."""

    def __init__(self, path: Path, notebook: Path, machine: dict[str, str]) -> None:
        """Create an empty page.

        Args:
            path: File of the page.
            notebook: File of the notebook.
            machine: Paths of this machine, and the texts that replace them.
        """
        self._path = path
        self._machine = machine
        self._parts: list[str] = []
        self._origin = f"notebooks/{notebook.name}"
        self.pictures: dict[Path, bytes] = {}

    def add(self, cell: Any) -> None:
        """Add a cell and its outputs."""
        if cell.cell_type == "markdown":
            self._parts.append(cell.source)
            if len(self._parts) == 1:
                self._parts.append(
                    f"This page is `{self._origin}` with the outputs of a run. Open the notebook "
                    "to run it yourself."
                )
            return
        self._parts.append(f"```python\n{cell.source}\n```")
        printed = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        if text := self._cleaned(printed).strip("\n"):
            self._parts.append(f"```text\n{text}\n```")
        for output in cell.outputs:
            if output.output_type != "stream":
                self._show(output.data, cell.metadata)

    def _show(self, data: Any, metadata: Any) -> None:
        if "image/png" in data:
            self._add_picture("png", base64.b64decode(data["image/png"]), metadata)
        elif svg := data.get("image/svg+xml"):
            self._add_picture("svg", f"{svg}\n".encode(), metadata)
        elif data.get("text/html", "").startswith("<svg"):
            self._add_picture("svg", f"{data['text/html']}\n".encode(), metadata)
        elif "text/html" in data:
            html = EMPTY_LINES.sub("\n", self._cleaned(SCRIPT.sub("", data["text/html"])))
            self._parts.append(f'<div class="output">\n{html.strip()}\n</div>')
        elif text := self._cleaned(data.get("text/plain", "")):
            self._parts.append(f"```text\n{text}\n```")

    def _add_picture(self, kind: str, content: bytes, metadata: Any) -> None:
        picture = self._path.with_name(f"{self._path.stem}-{len(self.pictures) + 1}.{kind}")
        self.pictures[picture] = content
        self._parts.append(f"![{metadata[ALT]}]({picture.name})")

    def _cleaned(self, text: str) -> str:
        text = TERMINAL.sub("", text)
        for own, neutral in self._machine.items():
            text = text.replace(own, neutral)
        return "\n".join(line.rstrip() for line in text.splitlines())

    def write(self) -> None:
        """Write the page and its pictures, and delete the pictures of an earlier run."""
        for old in self._path.parent.glob(f"{self._path.stem}-[0-9]*"):
            old.unlink()
        self._path.write_text("\n\n".join(self._parts) + "\n")
        for path, content in self.pictures.items():
            path.write_bytes(content)


def main() -> None:
    """Write the pages of the named notebooks, or of all notebooks if none is named."""
    names = sys.argv[1:]
    for notebook in NOTEBOOKS:
        if names and notebook.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            machine = {directory: "/here", tempfile.gettempdir(): "/tmp"}  # noqa: S108
            page = Page(page_of(notebook), notebook, machine)
            for cell in executed(notebook, Path(directory)).cells:
                page.add(cell)
        page.write()
        sys.stdout.write(f"{page_of(notebook).relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
