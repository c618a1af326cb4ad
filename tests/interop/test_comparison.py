"""The comparison itself must detect the faults for which the interoperation test looks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.interop import apache_tools
from tests.interop.apache_tools import SkippedError
from tests.interop.client_process import ClientProcess, Got
from tests.interop.payload import Source
from tests.interop.stage import JAVA, OURS, WHOLE, Bookies, Stage, Written

SOURCE = Source(7)


@dataclass
class Reports:
    """The reports of a writer before it was killed."""

    sent: int
    acknowledged: int


@dataclass
class Fixed:
    """Two clients that answer with the same metadata and the same entries."""

    metadata_read: dict[str, Any]
    got: list[Got]
    kind: str = JAVA
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def staying(self, _kind: str) -> Fixed:
        return self

    def metadata(self, _ledger_id: int) -> dict[str, Any]:
        return dict(self.metadata_read)

    def ask(self, *words: object) -> list[str]:
        self.asked.append(words)
        return [str(self.metadata_read["last_entry_id"])]

    def read(self, _ledger: int, first: int, last: int, _how: str = "") -> list[Got]:
        return [entry for entry in self.got if first <= entry.entry_id <= last]


def entries(last_entry_id: int) -> list[Got]:
    found = []
    for entry_id in range(last_entry_id + 1):
        payload = SOURCE.payload(entry_id)
        found.append(Got(entry_id, len(payload), hashlib.sha256(payload).hexdigest()))
    return found


def staged(got: list[Got], last_entry_id: int, length: int, reports: Reports) -> tuple[Any, ...]:
    created = {
        "quorum": [3, 3, 2],
        "digest": "CRC32C",
        "password": "00",
        "created_ms": -1,
        "custom": {
            "application": b"interop".hex(),
            "bytes": bytes(range(256)).hex(),
            "empty": "",
        },
    }
    closed = {"state": "CLOSED", "last_entry_id": last_entry_id, "length": length, **created}
    clients = Fixed(closed, got)
    stage = Stage(7, cast("Bookies", None), cast("Any", clients))
    writer = cast("ClientProcess", reports)
    return stage, Written(1, WHOLE, "CRC32C", "00", SOURCE, writer, created)


def test_comparison_of_what_was_sent_is_clean() -> None:
    length = SOURCE.length(9)
    stage, ledger = staged(entries(9), 9, length, Reports(sent=16, acknowledged=9))
    stage.compare_closed(ledger, 9, length)
    assert stage.tally.is_clean
    assert stage.tally.entries == 30  # read by Java one by one and in batches, and by ours


def test_comparison_of_a_ledger_closed_before_its_last_acknowledged_entry_counts_the_lost() -> None:
    length = SOURCE.length(9)
    stage, ledger = staged(entries(9), 9, length, Reports(sent=16, acknowledged=12))
    stage.compare_closed(ledger, 9, length)
    assert stage.tally.lost == 3


def test_comparison_of_a_reader_that_skips_an_entry_counts_it_as_lost() -> None:
    length = SOURCE.length(9)
    stage, ledger = staged(entries(9)[:-1], 9, length, Reports(sent=16, acknowledged=9))
    stage.compare_closed(ledger, 9, length)
    assert stage.tally.lost == 3


def test_comparison_of_other_bytes_counts_them_as_changed() -> None:
    length = SOURCE.length(9)
    got = [*entries(8), Got(9, len(SOURCE.payload(9)), "0" * 64)]
    stage, ledger = staged(got, 9, length, Reports(sent=16, acknowledged=9))
    stage.compare_closed(ledger, 9, length)
    assert (stage.tally.changed, stage.tally.lost) == (3, 0)


def test_comparison_of_entries_beyond_the_last_sent_counts_them_as_invented() -> None:
    length = SOURCE.length(9)
    stage, ledger = staged(entries(9), 9, length, Reports(sent=9, acknowledged=8))
    stage.compare_closed(ledger, 9, length)
    assert stage.tally.invented == 3


def test_length_of_an_entry_left_out_is_refused_of_ours_and_counted_of_java() -> None:
    length = SOURCE.length(11)
    stage, ledger = staged(entries(9), 9, length, Reports(sent=16, acknowledged=9))
    with pytest.raises(AssertionError, match="length of the payloads"):
        stage.compare_closed(ledger, 9, length, recoverers=(OURS,))
    stage.compare_closed(ledger, 9, length, recoverers=(JAVA,))
    assert stage.tally.overstated == 1


def test_machine_without_a_java_compiler_skips_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SkippedError, match="javac"):
        apache_tools.apache_tools()


def test_machine_without_maven_and_without_jars_skips_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "javac").write_text("#!/bin/sh\n")
    (tmp_path / "javac").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SkippedError, match="mvn"):
        apache_tools.apache_tools()
    assert not list((tmp_path / "ledgerlog-interop").iterdir())
