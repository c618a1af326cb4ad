"""The file with the metadata of one ledger, and which imports are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ledgerlog_spark.errors import ConfigurationError, LedgerError
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.tools.exported_record import (
    SIZE_BYTES_MAX,
    ExportedRecord,
    check_import,
)

OPEN = LedgerMetadata(
    Quorum(2, 2, 1), (Fragment(0, ("a", "b")),), password=b"\xff", custom={"k": b"v"}
)
CLOSED = OPEN.closed(last_entry_id=9, length=40)
EXPORTED = ExportedRecord(7, "here", 3, CLOSED)
VERSION = Version(100, 3)


def changed(**fields: object) -> bytes:
    content = json.loads(EXPORTED.encode({}))
    return json.dumps({**content, **fields}).encode()


def test_a_file_has_the_whole_record() -> None:
    data = EXPORTED.encode({"state": "CLOSED"})
    assert json.loads(data)["metadata"] == {"state": "CLOSED"}
    assert ExportedRecord.decode(data, "f") == EXPORTED


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty", b""),
        ("list", b"[]"),
        ("null", b"null"),
        ("no fields", b"{}"),
        ("no text", b"\xff\xfe"),
        ("newer", changed(format=2)),
        ("negative id", changed(ledger_id=-1)),
        ("boolean id", changed(ledger_id=True)),
        ("text id", changed(ledger_id="7")),
        ("no version", changed(version=None)),
        ("no base64", changed(record_base64="!")),
        ("no record", changed(record_base64="AAAA")),
        ("no bytes", changed(record_base64=None)),
        ("large", b" " * (SIZE_BYTES_MAX + 1)),
        ("deep", b"[" * 100_000),
    ],
)
def test_another_file_is_refused_by_its_name(name: str, data: bytes) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is not an exported record"):
        ExportedRecord.decode(data, name)


def test_a_ledger_that_does_not_exist_is_created() -> None:
    check_import(EXPORTED, "here", None, None, None)
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_import(EXPORTED, "here", None, None, 3)


def test_a_record_of_another_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="of the cluster here, and this cluster is there"):
        check_import(EXPORTED, "there", None, None, None)


@pytest.mark.parametrize("given", [None, 2, 4])
def test_an_existing_ledger_needs_its_current_version(given: int | None) -> None:
    with pytest.raises(ConfigurationError, match="--replace-version 3 to replace") as refused:
        check_import(EXPORTED, "here", CLOSED, VERSION, given)
    assert refused.value.definite
    check_import(EXPORTED, "here", CLOSED, VERSION, 3)
    check_import(EXPORTED, "here", None, VERSION, 3)  # the record there cannot be decoded


@pytest.mark.parametrize(
    ("new", "found", "why"),
    [
        (OPEN, CLOSED, "never returns to an earlier state"),
        (OPEN, OPEN.in_recovery(), "never returns to an earlier state"),
        (OPEN.in_recovery(), CLOSED, "never returns to an earlier state"),
        (OPEN.closed(last_entry_id=8, length=40), CLOSED, "end of a closed ledger never changes"),
        (OPEN.closed(last_entry_id=10, length=40), CLOSED, "end of a closed ledger never changes"),
        (OPEN.closed(last_entry_id=9, length=41), CLOSED, "end of a closed ledger never changes"),
    ],
)
def test_no_import_opens_a_ledger_or_moves_its_end(
    new: LedgerMetadata, found: LedgerMetadata, why: str
) -> None:
    with pytest.raises(LedgerError, match=why):
        check_import(replace(EXPORTED, metadata=new), "here", found, VERSION, 3)


def test_an_open_ledger_may_be_closed_or_get_other_bookies() -> None:
    check_import(EXPORTED, "here", OPEN, VERSION, 3)
    other = CLOSED.with_fragments((Fragment(0, ("a", "c")),))
    check_import(replace(EXPORTED, metadata=other), "here", CLOSED, VERSION, 3)
