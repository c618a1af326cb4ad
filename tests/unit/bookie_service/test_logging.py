"""Logs of a bookie: secrets and payloads stay out of them."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import structlog

from bookie_server.service import logging as logging_module
from bookie_server.service.logging import (
    LIBRARY_TEXT_MAX,
    RECORDS_IN_WINDOW_MAX,
    WINDOW_SECONDS,
    RateLimit,
    black_out_secrets,
    configure_logging,
    fields_of,
    get_logger,
)
from ledgerlog_spark.errors import EntryUnknownError
from ledgerlog_spark.lines import LogLines

PATIENCE_SECONDS = 40


def test_fields_that_speak_of_secrets_are_hidden() -> None:
    record = black_out_secrets(
        None,
        "info",
        {"event": "fenced", "ledger_id": 7, "master_key": "abc", "Password": "x", "token": 1},
    )
    assert record == {
        "event": "fenced",
        "ledger_id": 7,
        "master_key": "<hidden>",
        "Password": "<hidden>",
        "token": "<hidden>",
    }


def test_an_error_is_logged_with_its_fields_and_its_message() -> None:
    error = EntryUnknownError("entry 3 of ledger 7 is unknown", ledger_id=7, entry_id=3, reason="x")
    assert fields_of(error) == {
        "ledger_id": 7,
        "entry_id": 3,
        "reason": "entry 3 of ledger 7 is unknown",
    }
    assert fields_of(OSError(5, "Input/output error")) == {"reason": "[Errno 5] Input/output error"}
    assert fields_of(TimeoutError()) == {"reason": "TimeoutError"}


def test_raw_bytes_are_told_by_their_size_only() -> None:
    record = black_out_secrets(
        None, "info", {"event": "x", "body": b"canary", "view": memoryview(b"12")}
    )
    assert record == {"event": "x", "body": "<6 bytes>", "view": "<2 bytes>"}


def test_an_event_that_comes_too_often_is_dropped_and_its_number_told() -> None:
    now = 0.0
    limit = RateLimit(lambda: now)

    def write(
        method: str = "warning", event: str = "connection_closed"
    ) -> dict[str, object] | None:
        try:
            return dict(limit(None, method, {"subject": "v2", "event": event}))
        except structlog.DropEvent:
            return None

    written = [write() for _ in range(10_000)]
    assert sum(record is not None for record in written) == RECORDS_IN_WINDOW_MAX
    assert write(event="another") is not None
    assert write(method="error") is not None
    now = WINDOW_SECONDS
    record = write()
    assert record is not None
    assert record["suppressed"] == 10_000 - RECORDS_IN_WINDOW_MAX
    record = write()
    assert record is not None
    assert "suppressed" not in record


@pytest.fixture
def _restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


@pytest.mark.usefixtures("_restored_logging")
def test_what_libraries_log_is_bounded_and_of_one_form(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:  # one window of the limit, however long it takes
        patch.setattr(logging_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
        lines = configure_logging("info")
    library = logging.getLogger("some.library")
    library.info("too little to tell")
    for number in range(1_000):
        try:
            int("x" * 4_000)
        except ValueError:
            library.exception("call %d failed %s", number, "y" * 10_000)
    assert lines.drain(PATIENCE_SECONDS)
    # Threads of earlier tests, such as those of a client of an ended cluster, log too.
    lines_of_it = (line for line in capfd.readouterr().err.splitlines() if library.name in line)
    read = [json.loads(line) for line in lines_of_it]
    assert len(read) == RECORDS_IN_WINDOW_MAX
    assert {record["subject"] for record in read} == {library.name}
    assert read[0]["severity"] == "error"
    assert read[0]["message"].startswith("call 0 failed y")
    assert len(read[0]["message"]) == LIBRARY_TEXT_MAX


@pytest.mark.usefixtures("_restored_logging")
def test_a_finalizer_that_logs_while_a_line_is_written_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The garbage collector may run at each allocation, and finalizers may log."""
    is_collected = False
    write = LogLines.write

    def collect_and_write(lines: LogLines, text: str) -> int:
        nonlocal is_collected
        if not is_collected:
            is_collected = True
            logging.getLogger("asyncio").error("an exception was never retrieved")
            get_logger("lifecycle").error("task_crashed")
        return write(lines, text)

    monkeypatch.setattr(LogLines, "write", collect_and_write)
    lines = configure_logging("info")
    writer = threading.Thread(target=lambda: get_logger("v2").warning("first"), daemon=True)
    writer.start()
    writer.join(PATIENCE_SECONDS)
    assert not writer.is_alive(), "it waits for itself"
    assert lines.drain(PATIENCE_SECONDS)
    # Threads of earlier tests log too.
    texts = ("an exception was never retrieved", "task_crashed", '"first"')
    written = [
        line for line in capfd.readouterr().err.splitlines() if any(text in line for text in texts)
    ]
    read = [json.loads(line)["event"] for line in written]
    assert read == ["library_message", "task_crashed", "first"]


@pytest.mark.usefixtures("_restored_logging")
def test_the_traceback_of_an_error_has_no_values(capfd: pytest.CaptureFixture[str]) -> None:
    lines = configure_logging("info")

    def add(master_key: bytes, entry: memoryview) -> None:
        raise AssertionError(f"{len(master_key)} {len(entry)}")

    try:
        add(b"canary of a key", memoryview(b"canary of a payload"))
    except AssertionError as error:
        get_logger("lifecycle").error("task_crashed", exc_info=error)
    assert lines.drain(PATIENCE_SECONDS)
    written = capfd.readouterr().err
    (line,) = [line for line in written.splitlines() if "task_crashed" in line]
    (trace,) = json.loads(line)["exception"]
    assert (trace["exc_type"], trace["exc_value"]) == ("AssertionError", "15 19")
    assert trace["frames"][-1]["name"] == "add"
    assert "canary" not in written
