"""What `logs append` reads from standard input."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from ledgerlog_spark.cli.log_records import _json_line, _lines_of_standard_input, _shown_line
from ledgerlog_spark.client.append_batches import checked_payload
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX


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
