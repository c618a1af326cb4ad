"""The output of `logs list` and `ledgers list` for unreadable logs and ledgers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.cli.ledgers import commands as ledgers
from ledgerlog_spark.cli.logs import commands as logs
from ledgerlog_spark.errors import LogNotFoundError, MetadataFormatError
from ledgerlog_spark.metadata.ledgers.walk import WalkedLedger
from ledgerlog_spark.model import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.log.state.records import LogSnapshot, VersionInterval

RECORD = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("a",)),), LedgerState.OPEN)
SNAPSHOT = LogSnapshot("id", "there", VersionInterval(3, 0, 7, 0, "0" * 32, 0), (), {})


class Client:
    """A cluster with readable, deleted and damaged logs and ledgers."""

    def __init__(self) -> None:
        self.logs = SimpleNamespace(names=lambda: ["there", "gone", "damaged", "last"])
        self.logs.open = lambda name: SimpleNamespace(snapshot=lambda: self._read(name))

    @staticmethod
    def _read(name: str) -> LogSnapshot:
        if name == "gone":
            raise LogNotFoundError("deleted a moment ago", log=name)
        if name == "damaged":
            raise MetadataFormatError("not a head")
        return SNAPSHOT


def described(_: Client) -> Iterator[dict[str, Any]]:
    """Ledgers as a walk yields them; it omits the deleted ledger 2."""
    found: list[Versioned[LedgerMetadata] | MetadataFormatError] = [
        Versioned(RECORD, Version(1, 0)),
        MetadataFormatError("not a record"),
        Versioned(RECORD, Version(4, 0)),
    ]
    return (
        ledgers.described(WalkedLedger(ledger_id, each))
        for ledger_id, each in zip((1, 3, 4), found, strict=True)
    )


@pytest.mark.parametrize(
    ("listed", "row_of", "names", "damaged"),
    [
        (logs._all, logs._row, ["there", "damaged", "last"], ("damaged", "unreadable")),
        (described, ledgers._row, ["1", "3", "4"], ("3", "unreadable")),
    ],
    ids=["logs", "ledgers"],
)
def test_what_cannot_be_read_is_marked_and_does_not_hide_the_rest(
    listed: Callable[[Any], Iterator[dict[str, Any]]],
    row_of: Callable[[dict[str, Any]], tuple[object, ...]],
    names: list[str],
    damaged: tuple[str, str],
) -> None:
    found = list(listed(Client()))
    rows = [row_of(each) for each in found]
    assert [row[0] for row in rows] == names
    assert rows[1] == (*damaged, None, None, None, None)
    assert found[1]["error"].startswith("not a ")
