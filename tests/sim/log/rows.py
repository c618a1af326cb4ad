"""Random schemas and passwords of jobs, which the planning of a write decides.

A schema is a set of columns with one letter each. A write that adds rows keeps or extends the
columns of the log. An overwrite may replace them (`overwriteSchema`). The first commit of a log
always replaces the columns that the log was created with.
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
"""Size of a schema: so large that a small head has room for at most two."""

PASSWORD = b"the-logs-own-secret"
WRONG_PASSWORDS = (b"another-secret", b"")


def schema_of(columns: Iterable[str]) -> bytes:
    return "".join(sorted(columns)).ljust(SCHEMA_SIZE_BYTES, ".").encode()


def columns_of(schema: bytes) -> set[str]:
    return set(schema.decode().rstrip("."))


def drawn_schema(random: Random) -> bytes:
    """Return a random schema of few columns."""
    return schema_of(random.sample(COLUMNS, random.randint(1, 2)))


def chosen_schema(random: Random, state: LogState, mode: WriteMode, usual: bytes) -> bytes:
    """Return the schema that the log gets from a write that was planned on `state`.

    Args:
        random: The random numbers.
        state: The state of the log.
        mode: The mode of the write.
        usual: The schema of most first writes.
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
    """Return the columns of the log with one more, which the log may already have."""
    return schema_of(columns_of(state.schema or b"") | {random.choice(COLUMNS)})


def drawn_password(random: Random) -> bytes:
    """Return the random password of a log. Most logs have no password."""
    return PASSWORD if random.random() < 0.4 else b""


def password_given(random: Random, right: bytes) -> bytes:
    """Return the password that a user gives: `right`, or sometimes a wrong one."""
    if random.random() < 0.95:
        return right
    return random.choice([wrong for wrong in (*WRONG_PASSWORDS, PASSWORD) if wrong != right])


def is_password(stored: str, password: bytes) -> bool:
    """Whether `stored`, the head's information about its password, fits `password`."""
    try:
        compare_password("log", stored, password)
    except UnauthorizedError:
        return False
    return True


def leaks(head: LogHead) -> bool:
    """Whether the stored or printed form of the head shows a password."""
    shown = encode_head(head) + repr(head).encode()
    return any(secret in shown for secret in (PASSWORD, *WRONG_PASSWORDS) if secret)


def leaks_in(error: LedgerLogError) -> bool:
    """Whether the printed form of an error shows a password."""
    fields: Any = vars(error)
    shown = (repr(error) + str(error) + repr(fields)).encode()
    return any(secret in shown for secret in (PASSWORD, *WRONG_PASSWORDS) if secret)
