"""Compares the password of a commit with the log's (LOGS.md#G11).

The head stores which it is. A head of an older version that lists ledgers does not: then the record
of a listed ledger has to say it, before a commit lists more beside it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.messages import PagesRead, PasswordRead, ReadPages, ReadPassword
from ledgerlog_spark.protocol.log.password import (
    PASSWORD_CHECK,
    check_password,
    compare_password,
    password_check,
    with_password,
)
from ledgerlog_spark.protocol.log.read.versions import newest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.protocol.log.state.records import Item, LogHead
    from ledgerlog_spark.protocol.log.state.walk import Walk

LEDGERS_READ_MAX = 8
"""Of the newest that are listed, until the record of one names its password."""


class PasswordGuard:
    """The password of one commit: `next_request` and `take` until nothing is to be asked."""

    __slots__ = ("_head_token", "_is_compared", "_ledger_ids", "_log", "_newest", "_password")

    def __init__(self, log: str, password: bytes) -> None:
        """Of a commit that lists ledgers of that password."""
        self._log = log
        self._password = password
        self._is_compared = False
        self._head_token = ""
        self._newest: Walk[Item] | None = None
        self._ledger_ids: list[int] | None = None

    def next_request(self, head: LogHead) -> Callable[[int], ReadPages | ReadPassword] | None:
        """What to ask before the commit goes on with this head; None for nothing.

        Raises:
            UnauthorizedError: The log has another password.
            DataLossError: Nothing tells which it has.
        """
        check_password(self._log, head, self._password)
        if PASSWORD_CHECK in head.properties or self._is_compared:
            return None
        if self._newest is None or self._head_token != head.token:
            self._newest, self._head_token, self._ledger_ids = newest_of(head), head.token, None
        if self._newest.wanted:
            return partial(ReadPages, pages=self._newest.wanted)
        items = self._newest.records()
        if not items:
            return None
        if self._ledger_ids is None:
            newest_first = dict.fromkeys(item.ledger_id for item in reversed(items))
            self._ledger_ids = list(newest_first)[:LEDGERS_READ_MAX]
        if self._ledger_ids:
            return partial(ReadPassword, ledger_id=self._ledger_ids[0])
        raise DataLossError(
            f"the password of log {self._log!r} cannot be determined: none of the newest ledgers "
            f"that it lists has a record; run `ledgerlog logs check {self._log}`",
            log=self._log,
        )

    def take(self, reply: PagesRead | PasswordRead) -> None:
        """The reply to that request; pages are there.

        Raises:
            UnauthorizedError: A listed ledger has another password.
        """
        if isinstance(reply, PagesRead):
            assert self._newest is not None
            self._newest.feed(reply.pages)
        elif reply.outcome is MetadataOutcome.OK:
            listed = password_check(reply.password, bytes.fromhex(self._head_token))
            compare_password(self._log, listed, self._password)
            self._is_compared = True
        else:
            assert self._ledger_ids is not None
            self._ledger_ids.pop(0)

    def stored(self, head: LogHead, token: str) -> LogHead:
        """The head that a commit of that token, which is its salt, writes."""
        return with_password(head, self._password, bytes.fromhex(token))
