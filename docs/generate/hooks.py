"""Functions that MkDocs calls.

They add the generated pages, and adapt lists and code for MkDocs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from docs.generate.pages import PAGES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^\s*(?:```|~~~)")
ITEM = re.compile(r"^(?:[-*]|\d+\.) ")
PICTURE = re.compile(r'<p><img alt="[^"]*" src="([\w/.-]+\.svg)" ?/></p>')
NAMED_FENCE = re.compile(r"^```(\w+) [\w-]+$", re.MULTILINE)
MARKER = re.compile(r"^ *<!-- (?:not run|own terminal until): .* -->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page in the form that Python-Markdown needs.

    The result has an empty line before each list. Its code blocks have no names, because only tests
    use these names.
    """
    return with_lines_before_lists(NAMED_FENCE.sub(r"```\1", MARKER.sub("", markdown)))


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Return a page with its drawings inside, because images would not have the page's colours."""
    folder = Path(page.file.abs_src_path or "").parent

    def drawing(match: re.Match[str]) -> str:
        return f'<div class="drawing">{(folder / match[1]).read_text()}</div>'

    return PICTURE.sub(drawing, html)


def with_lines_before_lists(markdown: str) -> str:
    """Return the text with an empty line before each list that directly follows a paragraph."""
    lines: list[str] = []
    is_code = is_in_list = False
    for line in markdown.splitlines():
        if FENCE.match(line):
            is_code = not is_code
        begins_item = bool(ITEM.match(line)) and not is_code
        if begins_item and not is_in_list and lines and lines[-1].strip():
            lines.append("")
        if begins_item:
            is_in_list = True
        elif line and not line.startswith(" "):
            is_in_list = False
        lines.append(line)
    return "\n".join(lines) + "\n"
