"""The output of `logs show` for ledgers that are deleted during the command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.cli.logs.commands import _seen
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.model import Fragment

if TYPE_CHECKING:
    from collections.abc import Sequence


class Log:
    """Returns one list after the other, and then always the last one."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self.lists = [
            [
                SimpleNamespace(ledger_id=i, rows=1, size_bytes=1, last_entry_id=0)
                for i in ledger_ids
            ]
            for ledger_ids in lists
        ]

    def snapshot(self, _version: int | None) -> Any:
        items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return SimpleNamespace(items=items)


class Client:
    """A client with some of the ledgers."""

    def __init__(self, *ledger_ids: int) -> None:
        self.ledger_ids = ledger_ids

    def ledger_metadata(self, ledger_id: int) -> Any:
        if ledger_id not in self.ledger_ids:
            raise LedgerNotFoundError("no such ledger", ledger_id=ledger_id)
        return SimpleNamespace(fragments=(Fragment(0, ("a:1",)),))


@pytest.mark.parametrize(
    ("lists", "shown", "gone"),
    [
        ([[1, 2]], [1, 2], []),
        ([[1, 2, 3], [2]], [2], []),
        ([[1, 3], [2, 3], [2]], [2], []),
        ([[2, 3], [2, 3]], [2, 3], [3]),
    ],
)
def test_ledger_is_called_deleted_only_if_it_is_listed_after_it_was_looked_for(
    lists: list[list[int]], shown: list[int], gone: list[int]
) -> None:
    there: Any = Client(1, 2) if 1 in lists[-1] else Client(2)
    log: Any = Log(lists)
    _, drawn = _seen(there, log, None)
    assert [ledger.ledger_id for ledger in drawn] == shown
    assert [ledger.ledger_id for ledger in drawn if not ledger.fragments] == gone
