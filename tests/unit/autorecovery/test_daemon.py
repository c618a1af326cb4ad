"""The lines of `ledgerlog autorecovery run`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerlog_spark.autorecovery.daemon import AutoRecoveryDaemon
from ledgerlog_spark.autorecovery.events import LISTED_MAX, TEXT_CHARACTERS_MAX
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.protocol.autorecovery.audit.messages import BookiesLost, CheckEnded, CheckKind


@pytest.fixture
def lines() -> list[str]:
    return []


def reported(lines: list[str], event: str, subject: Any) -> dict[str, Any]:
    daemon = AutoRecoveryDaemon(None, "host:1", lines.append, WorkerSettings())
    daemon._report(event, subject)
    found: dict[str, Any] = json.loads(lines[-1])
    assert found.pop("time_ms") > 0
    return found


def test_an_event_has_its_fields(lines: list[str]) -> None:
    ended = CheckEnded(CheckKind.REPLICAS, ledgers=7, holes=2, size_bytes=5, unreadable=1)
    assert reported(lines, "CheckEnded", ended) == {
        "event": "check_ended",
        "kind": "replicas",
        "ledgers": 7,
        "holes": 2,
        "size_bytes": 5,
        "unreadable": 1,
    }


def test_lists_and_texts_of_a_line_are_bounded(lines: list[str]) -> None:
    lost = BookiesLost(tuple(f"b{number}" for number in range(LISTED_MAX + 1)))
    assert len(reported(lines, "BookiesLost", lost)["bookie_ids"]) == LISTED_MAX
    error = ValueError("x" * 10_000)
    assert len(reported(lines, "store_failed", error)["about"]) == TEXT_CHARACTERS_MAX
