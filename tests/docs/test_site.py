"""The site builds without a warning and without network, and its reference is complete."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pytest

import ledgerlog_spark as ll
from bookie_server.config import BookieSettings
from bookie_server.service.metrics.descriptions import meanings
from docs.generate import commands, errors, metrics, pictures
from docs.generate.hooks import with_lines_before_lists
from docs.generate.pages import PAGES
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.datasource.options.values import TABLE
from ledgerlog_spark.datasource.scan import task_rows
from tests.fixtures.command_line import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROW = re.compile(r"^\| (?:&nbsp;)*`-{0,2}([\w-]+)`", re.MULTILINE)
EXPLAINED = re.compile(r"^\| `([\w-]+)` \|.* (?!\|)\S+ \|$", re.MULTILINE)
"""A row of settings whose last cell has a text."""
LOADED = re.compile(
    r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=["']?(https?:[^"'\s>]+)"""
)
CANONICAL = re.compile(r'<link rel="?canonical')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_site_builds_strictly_and_has_every_page(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    names = {str(path) for path in written} | set(PAGES)
    shown = {name.removesuffix("README.md").removesuffix(".md") + ".html" for name in names}
    assert {name for name in shown if not (site / name).is_file()} == set()


def test_every_heading_of_a_page_is_a_heading_of_the_site(site: Path) -> None:
    """If the site does not recognize a block of code, the heading after it is hidden."""
    missing = []
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        name = str(path.relative_to(ROOT / "docs")).removesuffix("README.md").removesuffix(".md")
        shown = (site / f"{name}.html").read_text()
        count = len(re.findall(r"^#{1,6} ", text, re.MULTILINE))
        if len(re.findall(r"<h[1-6] id=", shown)) < count:
            missing.append(name)
    assert missing == []


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert {url for page in pages for url in LOADED.findall(page.read_text())} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?https?:[^)]+\)", styles) == []


def test_drawings_are_part_of_their_pages(site: Path) -> None:
    assert '<svg class="ll"' in (site / "index.html").read_text()


def test_reference_of_the_python_api_has_every_public_name(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text()
    headings = re.findall(r"<h2[^>]*>(.*?)<a", text, re.DOTALL)
    titled = {re.sub("<.*?>", "", each).split()[0] for each in headings}
    missing = [name for name in ll.__all__ if f"ledgerlog_spark.{name}" not in titled]
    assert missing == ["aio", "errors"]  # `aio` has a function, and `errors` has a page
    assert "ledgerlog_spark.aio.connect" in titled
    handles = [
        "create_ledger",
        "append_batch",
        "read_entry",
        "append_many",
        "tail",
        "names",
        "history",
    ]
    assert [name for name in handles if f'.{name}"' not in text] == []


def test_reference_lists_every_command_and_option() -> None:
    text = commands.page()
    found = commands.commands()
    assert len(found) > 30
    assert re.findall(r"^### ledgerlog (.*)$", text, re.MULTILINE) == list(found)
    for words, command in found.items():
        section = text.partition(f"### ledgerlog {words}\n")[2].partition("\n### ")[0]
        spellings = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        wanted = {name for name in spellings if name.startswith("-") and "completion" not in name}
        assert {name for name in wanted if f"`{name}`" not in section} == set(), words
    run = text.partition("### ledgerlog bookie run\n")[2].partition("\n### ")[0]
    settings = {f"`--{name.replace('_', '-')}`" for name in BookieSettings.model_fields}
    others = {"`--directories`", "`--without-directories`"}
    assert {each for each in settings if each not in run} == others


def rows_of(page: str) -> list[str]:
    return ROW.findall(PAGES[page]())


def test_reference_lists_every_option_of_the_data_source() -> None:
    found = PAGES["reference/options.md"]().partition("## Other accepted names")[0]
    assert sorted(ROW.findall(found)) == sorted(option.name for option in TABLE)


def test_reference_lists_every_setting() -> None:
    bookie = PAGES["reference/settings.md"]().partition("## Exit codes")[0]
    assert ROW.findall(bookie) == list(BookieSettings.model_fields)
    client = rows_of("reference/client-settings.md")
    assert client[: len(ClientSettings.__slots__)] == list(ClientSettings.__slots__)


def settings_below(settings: Any) -> dict[str, list[str]]:
    """The names of the settings of each class, with the classes of the values of settings."""
    found = {type(settings).__name__: [each.name for each in fields(settings)]}
    for name in found[type(settings).__name__]:
        if is_dataclass(value := getattr(settings, name)):
            found |= settings_below(value)
    return found


def test_reference_explains_every_setting() -> None:
    bookie = PAGES["reference/settings.md"]().partition("## Exit codes")[0]
    assert EXPLAINED.findall(bookie) == list(BookieSettings.model_fields)
    sections = PAGES["reference/client-settings.md"]().split("\n## ")[1:]
    client = {each.splitlines()[0].split()[-1]: EXPLAINED.findall(each) for each in sections}
    assert client == settings_below(ClientSettings())
    assert client.keys() > {"ReadAhead", "RetryPolicy", "Window"}


@pytest.mark.parametrize("row", ["| `a` | `1` |  |", "| `a` |  |  |", "| `a` |  |"])
def test_a_setting_without_a_meaning_is_found(row: str) -> None:
    assert EXPLAINED.findall(f"{row}\n| `b` |  | What b is. |") == ["b"]


def test_reference_explains_every_metric() -> None:
    found = metrics.descriptions()
    assert len(found) > 60
    assert sorted(metric.key for metric in found) == sorted(meanings())
    text = PAGES["reference/metrics.md"]()
    assert [metric.name for metric in found if f"| `{metric.name}" not in text] == []


def test_reference_explains_every_metric_of_a_scan() -> None:
    assert metrics.scan_metrics_in_code() == set(metrics.OF_A_SCAN)
    (event,) = re.findall(r'"event": "(slices .*)"', inspect.getsource(task_rows))
    assert f"`{event}`" in metrics.page()


def test_reference_explains_every_event_of_upkeep() -> None:
    assert metrics.events_in_code() == set(metrics.EVENTS)


def test_reference_lists_every_error() -> None:
    classes = [name for name in dir(ll.errors) if name.endswith("Error")]
    assert sorted(rows_of("reference/errors.md")) == sorted(classes)
    assert len(errors.tree()) == len(classes) > 30


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_is_as_it_is_drawn(name: str) -> None:
    assert (pictures.FOLDER / name).read_text() == pictures.PICTURES[name]()


def test_lists_get_the_empty_line_that_the_site_needs() -> None:
    text = "words:\n- one\n  more\n- two\n\n```\nx\n- no list\n```\n"
    assert with_lines_before_lists(text) == text.replace("words:\n", "words:\n\n")
