"""The standard input of `logs append`, and its reports of failures."""

from __future__ import annotations

import io
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.cli.logs.records import (
    _append_and_close,
    _Appended,
    _json_line,
    _lines_of_standard_input,
    _shown_line,
)
from ledgerlog_spark.client.payloads import checked_payload
from ledgerlog_spark.errors import (
    InternalError,
    LeaderDeposedError,
    LedgerLogError,
    LocalProtocolError,
    LogNotFoundError,
    MetadataUnavailableError,
)
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX

UNKNOWN = LeaderDeposedError("may be there")
UNSENT = LeaderDeposedError("is not there", definite=True)
TOO_LARGE = LocalProtocolError("split it")


class Outcomes:
    """A leader whose appends end together, with given outcomes, after the last append."""

    def __init__(self, *outcomes: int | LedgerLogError, at_close: LedgerLogError | None = None):
        self.outcomes = outcomes
        self.at_close = at_close
        self.is_closed = False
        self.futures: list[Future[Any]] = []

    def append_async(self, _record: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        self.futures.append(future)
        if len(self.futures) == len(self.outcomes):
            for each, outcome in zip(self.futures, self.outcomes, strict=True):
                if isinstance(outcome, LedgerLogError):
                    each.set_exception(outcome)
                else:
                    each.set_result(SimpleNamespace(offset=outcome))
        return future

    def close(self) -> None:
        self.is_closed = True
        if self.at_close is not None:
            raise self.at_close


def append_to(leader: Any) -> _Appended:
    appended = _Appended()
    _append_and_close(leader, [b"x"] * len(leader.outcomes), appended)
    return appended


def lines_of(monkeypatch: pytest.MonkeyPatch, given: bytes) -> list[bytes]:
    stdin = SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(given))
    monkeypatch.setattr(sys, "stdin", stdin)
    return list(_lines_of_standard_input())


def test_each_line_is_a_record_whatever_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of(monkeypatch, b"a\n\nb c\r\n\xff\nend") == [b"a", b"", b"b c", b"\xff", b"end"]
    assert lines_of(monkeypatch, b"") == []


def test_a_line_without_an_end_is_not_kept_in_memory_and_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = lines_of(monkeypatch, bytes(3 * FRAME_SIZE_BYTES_MAX))[0]
    assert len(first) == FRAME_SIZE_BYTES_MAX
    with pytest.raises(LocalProtocolError, match="split it"):
        checked_payload(first)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"an order", b"an order\n"),
        (b"", b"\n"),
        (b"a\ttable", b"a\ttable\n"),
        ("Zürich".encode(), "Zürich\n".encode()),
        (b"\x1b[2J", b"b'\\x1b[2J'\n"),
        (b"\xff", b"b'\\xff'\n"),
    ],
)
def test_a_record_on_a_terminal_is_its_text_and_commands_nothing(
    value: bytes, shown: bytes
) -> None:
    assert _shown_line(value) == shown


def test_a_record_on_a_terminal_of_ascii_has_no_other_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ascii_terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_terminal)
    assert _shown_line("Zürich".encode()) == b"Z\\xfcrich\n"
    assert _json_line({"city": "Zürich"}) == b'{"city": "Z\\u00fcrich"}\n'


@pytest.mark.parametrize(
    "at_close", [LeaderDeposedError("another leader"), MetadataUnavailableError("no ZooKeeper")]
)
def test_a_log_that_cannot_be_closed_has_what_was_acknowledged(
    at_close: LedgerLogError, capsys: pytest.CaptureFixture[str]
) -> None:
    appended = append_to(Outcomes(3, 4, at_close=at_close))
    assert (appended.records, appended.first_offset, appended.last_offset) == (2, 3, 4)
    assert at_close.message in capsys.readouterr().err


@pytest.mark.parametrize("at_close", [LogNotFoundError("was deleted"), InternalError("a bug")])
def test_a_log_that_was_deleted_meanwhile_is_a_failure(at_close: LedgerLogError) -> None:
    with pytest.raises(type(at_close)):
        append_to(Outcomes(3, 4, at_close=at_close))


def test_what_failed_first_says_more_than_what_the_close_does() -> None:
    leader = Outcomes(0, TOO_LARGE, at_close=LeaderDeposedError("another leader"))
    with pytest.raises(LocalProtocolError, match="split it"):
        append_to(leader)
    assert leader.is_closed


def test_of_several_failures_one_whose_outcome_is_unknown_is_told() -> None:
    with pytest.raises(LeaderDeposedError, match="may be there"):
        append_to(Outcomes(0, UNKNOWN, UNSENT))
    with pytest.raises(LeaderDeposedError, match="may be there"):
        append_to(Outcomes(TOO_LARGE, UNKNOWN))


def test_what_is_acknowledged_behind_failures_is_counted() -> None:
    leader: Any = Outcomes(0, TOO_LARGE, 1, TOO_LARGE, 2)
    appended = _Appended()
    with pytest.raises(LocalProtocolError, match="split it"):
        _append_and_close(leader, [b"x"] * 5, appended)
    assert (appended.records, appended.last_offset) == (3, 2)
