"""The log lines of auto-recovery in a bookie's process, also about its unexpected end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from bookie_server.config import BookieSettings
from bookie_server.service import auto_recovery
from bookie_server.service.auto_recovery import BookieAutoRecovery
from ledgerlog_spark.autorecovery.events import LISTED_MAX, TEXT_CHARACTERS_MAX
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.protocol.autorecovery.audit.messages import BookiesLost
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded, JobOutcome
from ledgerlog_spark.testing.cluster import memory_metadata

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Parts:
    """Stands for `AutoRecovery`: its run ends with `error`, or waits for ever."""

    error: Exception | None = None
    report: Callable[[str, Any], None]

    def __init__(self, _id: str, _stores: object, report: Any, *_settings: object) -> None:
        type(self).report = report

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


@pytest.fixture
def recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BookieAutoRecovery:
    monkeypatch.setattr(auto_recovery, "AutoRecovery", Parts)
    settings = BookieSettings(directories=(tmp_path,), port=0, bookie_id="b")
    return BookieAutoRecovery("b", settings, memory_metadata())


async def test_an_unexpected_end_is_logged_as_an_error(
    recovery: BookieAutoRecovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parts, "error", ValueError("a bug"))
    with capture_logs() as lines:
        recovery.start()
        for _ in range(3):  # the task ends, and then its callback runs
            await asyncio.sleep(0)
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("autorecovery_crashed", "error")
    assert str(line["exc_info"]) == "a bug"
    await recovery.stop()


async def test_a_stop_is_no_crash(recovery: BookieAutoRecovery) -> None:
    with capture_logs() as lines:
        recovery.start()
        await asyncio.sleep(0)
        await recovery.stop()
        await asyncio.sleep(0)
        await recovery.stop()
    assert lines == []


def test_lines_have_the_bounded_fields_of_their_events(recovery: BookieAutoRecovery) -> None:
    ended = JobEnded(JobOutcome.HEALED, "b2", 7, 700, 1)
    lost = BookiesLost(tuple(f"b{number}" for number in range(LISTED_MAX + 1)))
    with capture_logs() as lines:
        Parts.report("job", ("mark", 17, ended))
        Parts.report("BookiesLost", lost)
        Parts.report("audit_failed", MetadataUnavailableError("x" * 10_000))
    job, event, failed = lines
    assert job["event"] == "replicated"
    assert (job["queue"], job["ledger_id"], job["entries_copied"]) == ("mark", 17, 7)
    assert (event["event"], event["what"]) == ("autorecovery", "bookies_lost")
    assert len(event["bookie_ids"]) == LISTED_MAX
    assert (failed["event"], failed["log_level"]) == ("autorecovery_failed", "warning")
    assert failed["what"] == "audit_failed"
    assert len(failed["about"]) == TEXT_CHARACTERS_MAX
