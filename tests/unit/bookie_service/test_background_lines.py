"""The log lines of compactions: one for each change, and one for refusals in a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from bookie_server.service import background_clock
from bookie_server.storage.compaction.cycle import Compacted


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    def keep(event: str, **fields: Any) -> None:
        lines.append({"event": event, **fields})

    logger = cast("structlog.stdlib.BoundLogger", SimpleNamespace(info=keep, warning=keep))
    monkeypatch.setattr(background_clock, "_logger", logger)
    return lines


def test_refusals_in_a_row_are_one_line_in_each_directory(logged: list[dict[str, Any]]) -> None:
    noted: list[Compacted] = []
    compactors: dict[str, Any] = {path: SimpleNamespace() for path in ("/a", "/b")}
    for path, compactor in compactors.items():
        background_clock.log_compactions(compactor, path, noted.append)
    for refusal in ("no room 1", "no room 2", "", "no room 3"):
        compactors["/a"].on_compacted(Compacted(80, refusal=refusal))
        compactors["/b"].on_compacted(Compacted(80))
    assert logged == [
        {"event": "compaction_refused", "directory": "/a", "reason": reason}
        for reason in ("no room 1", "no room 3")
    ]
    assert len(noted) == 8


@pytest.mark.parametrize(
    "compacted", [Compacted(80, files_freed=1), Compacted(80, files_withdrawn=1)]
)
def test_a_compaction_that_changed_a_file_is_a_line(
    logged: list[dict[str, Any]], compacted: Compacted
) -> None:
    compactor: Any = SimpleNamespace()
    background_clock.log_compactions(compactor, "/a", lambda _: None)
    compactor.on_compacted(Compacted(80))
    compactor.on_compacted(compacted)
    (line,) = logged
    assert line["event"] == "compacted"
    assert (line["files_freed"], line["files_withdrawn"]) == (
        compacted.files_freed,
        compacted.files_withdrawn,
    )
    assert "refusal" not in line
