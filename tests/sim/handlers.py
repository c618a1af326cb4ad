"""Replaces methods of shipped classes, in the class and in the dispatch tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ledgerlog_spark.protocol.leader.leader import LEADER_TABLE
from ledgerlog_spark.protocol.ledger.read.lac import LAC_TABLE
from ledgerlog_spark.protocol.ledger.read.reader import READER_TABLE
from ledgerlog_spark.protocol.ledger.recover.recovery import RECOVERY_TABLE
from ledgerlog_spark.protocol.ledger.write.writer import WRITER_TABLE

TABLES: tuple[Mapping[Any, Any], ...] = (
    WRITER_TABLE,
    RECOVERY_TABLE,
    READER_TABLE,
    LAC_TABLE,
    LEADER_TABLE,
)


def replace(undo: ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Set an attribute of a class or module until `undo` ends.

    A dispatch table refers to the function itself, so the row of the table is replaced too.
    """
    missing = object()
    original = vars(owner).get(name, missing)
    if original is missing:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, original)
    setattr(owner, name, replacement)
    for table in TABLES:
        for row in table.values():
            for event in [event for event, handler in row.items() if handler is original]:
                row[event] = replacement
                undo.callback(row.__setitem__, event, original)
