"""The status page of a real bookie in a real browser: values, the width of a phone, dark mode."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.model import Code
from tests.fixtures.bookie_process import BookieProcess, add_frame
from tests.fixtures.browser import Browser
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SCREENSHOTS = os.environ.get("LEDGERLOG_TEST_SCREENSHOTS")
SETTINGS: dict[str, Any] = {
    "admin_changes": True,
    "bookie_id": "a-bookie-with-a-long-name.example-cluster.internal:3181",
}
TEXT_OF = "[...document.querySelectorAll('#{} dl > *')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as started:
        yield started


@pytest.fixture
def browser(started_browser: Browser) -> Browser:
    """A browser with an empty page."""
    started_browser.new_page()
    return started_browser


@pytest.fixture(scope="module")
def bookie(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BookieProcess]:
    """A bookie that the tests share. Each of them leaves it running and writable."""
    uri = f"zk://{zookeeper.connect_string}/page-{os.getpid()}/ledgers"
    directory = tmp_path_factory.mktemp("bookie") / "data"
    process = BookieProcess(directory, uri, metrics_port=free_port(), **SETTINGS).start()
    yield process
    process.kill()


def url_of(bookie: BookieProcess, path: str = "/") -> str:
    return f"http://127.0.0.1:{bookie.settings['metrics_port']}{path}"


def put(bookie: BookieProcess, path: str, body: object) -> Any:
    request = urllib.request.Request(
        url_of(bookie, path), data=json.dumps(body).encode(), method="PUT"
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def section(browser: Browser, name: str) -> dict[str, str]:
    words = browser.value(TEXT_OF.format(name))
    return dict(zip(words[::2], words[1::2], strict=True))


def keep(browser: Browser, name: str) -> None:
    """Save a picture of the page if the environment names a folder for it."""
    if SCREENSHOTS:
        (Path(SCREENSHOTS) / f"{name}.png").write_bytes(browser.screenshot())


def test_page_shows_what_the_bookie_does(browser: Browser, bookie: BookieProcess) -> None:
    browser.show(1_200, 800)
    browser.open(url_of(bookie))
    browser.until_is("document.querySelector('#state').textContent", "writable")
    assert browser.value("document.title") == f"Bookie {bookie.settings['bookie_id']}"
    with bookie.peer() as peer:
        ids = iter(range(1_000_000))

        def is_shown(words: list[str]) -> bool:
            for _ in range(20):
                assert peer.ask(add_frame(1, next(ids), bytes(60_000))).code is Code.OK
            shown = dict(zip(words[::2], words[1::2], strict=True))
            return bool(re.fullmatch(r"[\d.]+ MiB/s", shown.get("Written", "")))

        browser.until(TEXT_OF.format("throughput"), is_shown)
    assert section(browser, "ledgers")["In memory"] == "1"
    browser.until(TEXT_OF.format("sync"), lambda words: words[1].endswith(" ms"))
    disk = section(browser, "disk")
    assert re.fullmatch(r"[\d.]+ (GiB|TiB|MiB)", disk["Free"])
    assert int(disk["Entry-log files"]) >= 1
    points = "document.querySelector('polyline').getAttribute('points').split(' ').length"
    browser.until(points, lambda count: count > 1)
    loop = section(browser, "loop")
    assert loop["Longest since the start"].endswith(" ms")
    keep(browser, "wide-light")
    put(bookie, "/api/v1/bookie/gc", {})
    browser.until(
        TEXT_OF.format("collection"),
        lambda words: int(words[words.index("Passes since the start") + 1]) > 0,
    )
    put(bookie, "/api/v1/bookie/state/readonly", {"readOnly": True})
    browser.until_is("document.querySelector('#state').textContent", "read-only")
    put(bookie, "/api/v1/bookie/state/readonly", {"readOnly": False})
    browser.until_is("document.querySelector('#state').textContent", "writable")
    assert browser.complaints == []
    origin = url_of(bookie)
    elsewhere = [url for url in browser.requested if not url.startswith((origin, "data:"))]
    assert elsewhere == [], "the page loads nothing from elsewhere"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1_200])
def test_page_is_readable_at_each_width_and_in_dark_mode(
    browser: Browser, bookie: BookieProcess, width: int, scheme: str
) -> None:
    browser.show(width, 800, scheme)
    browser.open(url_of(bookie))
    browser.until_is("document.querySelector('#state').textContent", "writable")
    browser.until(TEXT_OF.format("throughput"), lambda words: words[1].endswith("/s"))
    assert browser.value("document.documentElement.scrollWidth") <= width, "no sideways scrolling"
    assert (
        browser.value(
            "Math.min(...[...document.querySelectorAll('dt, dd')].map("
            "(each) => parseFloat(getComputedStyle(each).fontSize)))"
        )
        >= 14
    )
    contrasts = browser.value(CONTRASTS)
    assert len(contrasts) > 30
    assert min(contrasts) >= 4.5, "WCAG's level AA"
    is_dark = (
        browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(245, 246, 248)"
    )
    assert is_dark == (scheme == "dark")
    keep(browser, f"{width}-{scheme}")


CONTRASTS = """
(() => {
  const light = (color) => {
    const part = color.match(/[0-9.]+/g).slice(0, 3).map((each) => {
      const share = each / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const back = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = document.querySelectorAll("h1, h2, dt, dd, #state, #uptime, a, footer");
  return [...texts].map((each) => {
    const pair = [light(getComputedStyle(each).color), light(back(each))].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  });
})()
"""


def test_page_of_a_bookie_that_ended_does_not_pretend(
    browser: Browser, bookie: BookieProcess
) -> None:
    browser.open(url_of(bookie))
    browser.until_is("document.querySelector('#state').textContent", "writable")
    assert browser.value("document.querySelector('#problem').hidden")
    bookie.stop()
    browser.until("document.querySelector('#problem').textContent", lambda text: "old" in text)
    bookie.start()
    browser.until("document.querySelector('#problem').hidden")


def test_compaction_is_shown_with_its_counters(browser: Browser, bookie: BookieProcess) -> None:
    browser.open(url_of(bookie))
    browser.until_is("document.querySelector('#state').textContent", "writable")
    assert section(browser, "compaction")["Now"] == "waiting"
    browser.value(
        """fetch("api/v1/bookie/status").then((answer) => answer.json()).then((status) => {
          const own = "ledgerlog_bookie_storage_compaction";
          status.garbageCollection.minorCompacting = true;
          Object.assign(status.metrics, {
            [own + "s"]: 7, [own + "_bytes_copied"]: 2 * 1024 ** 2, [own + "_sources_withdrawn"]: 1,
            bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES: 3 * 1024 ** 3,
          });
          window.fetch = async () => new Response(JSON.stringify(status));
        })"""
    )
    browser.until(TEXT_OF.format("compaction"), lambda words: "minor" in words)
    assert section(browser, "compaction") == {
        "Now": "minor",
        "Since the start": "7",
        "Bytes copied": "2.0 MiB",
        "Bytes freed": "3.0 GiB",
        "Files not readable": "1",
    }
