"""Schemas and passwords of what jobs write: what planning a write decides, drawn at random.

A schema is a set of one-letter columns. A write that adds rows keeps the log's columns or adds to
them; an overwrite may replace them (`overwriteSchema`), and so does the first commit of a log,
whatever it was made with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, UnauthorizedError
from ledgerlog_spark.protocol.log.password import compare_password
from ledgerlog_spark.protocol.log.state.codec import encode_head
from ledgerlog_spark.protocol.log.state.records import LogHead, WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ledgerlog_spark.protocol.log.read.versions import LogState

COLUMNS = "abcdef"
SCHEMA_SIZE_BYTES = 40
"""So long that a small head has no room for more than two."""

PASSWORD = b"the-logs-own-secret"
WRONG_PASSWORDS = (b"another-secret", b"")


def schema_of(columns: Iterable[str]) -> bytes:
    return "".join(sorted(columns)).ljust(SCHEMA_SIZE_BYTES, ".").encode()


def columns_of(schema: bytes) -> set[str]:
    return set(schema.decode().rstrip("."))


def drawn_schema(random: Random) -> bytes:
    """Any one, of few columns."""
    return schema_of(random.sample(COLUMNS, random.randint(1, 2)))


def chosen_schema(random: Random, state: LogState, mode: WriteMode, usual: bytes) -> bytes:
    """What the log's schema is to be after a write that was planned on `state`.

    Args:
        random: Draws.
        state: Of the log.
        mode: Of the write.
        usual: Of most rows that a first write brings.
    """
    current = state.schema
    if mode is WriteMode.OVERWRITE and random.random() < 0.3:
        return drawn_schema(random)
    if current is None or state.head.version == 0:
        return usual if random.random() < 0.85 else drawn_schema(random)
    if random.random() < 0.12:
        return schema_of(columns_of(current) | {random.choice(COLUMNS)})
    return current


def wider_schema(random: Random, state: LogState) -> bytes:
    """The log's columns and one more, perhaps one that it has."""
    return schema_of(columns_of(state.schema or b"") | {random.choice(COLUMNS)})


def drawn_password(random: Random) -> bytes:
    """Of a log: most have none."""
    return PASSWORD if random.random() < 0.4 else b""


def password_given(random: Random, right: bytes) -> bytes:
    """What somebody gives who is to give `right`, now and then the wrong one."""
    if random.random() < 0.95:
        return right
    return random.choice([wrong for wrong in (*WRONG_PASSWORDS, PASSWORD) if wrong != right])


def is_password(stored: str, password: bytes) -> bool:
    """Whether a head that says this of its password takes rows of that one."""
    try:
        compare_password("log", stored, password)
    except UnauthorizedError:
        return False
    return True


def leaks(head: LogHead) -> bool:
    """Whether the head shows a password in what is stored or printed of it."""
    shown = encode_head(head) + repr(head).encode()
    return any(secret in shown for secret in (PASSWORD, *WRONG_PASSWORDS) if secret)


def leaks_in(error: LedgerLogError) -> bool:
    """Whether a failure tells a password to whoever prints it."""
    fields: Any = vars(error)
    shown = (repr(error) + str(error) + repr(fields)).encode()
    return any(secret in shown for secret in (PASSWORD, *WRONG_PASSWORDS) if secret)
