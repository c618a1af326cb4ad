"""The password that all ledgers of a log share, and its check in the head (LOGS.md#G11).

Ledgers with different passwords cannot be read together. So every commit that lists new ledgers
compares its password with the password of the first such commit. The head stores an HMAC of the
password with a random salt, so that heads, snapshots and printed output do not contain the
password. A slow hash is not needed, because each ledger's metadata in the same store contains the
password itself.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

from ledgerlog_spark.errors import MetadataFormatError, UnauthorizedError
from ledgerlog_spark.protocol.log.state.records import LogHead

PASSWORD_CHECK = "passwordCheck"  # noqa: S105 (a name)
"""Name of the property that contains the check. The head also lists this name as a writer feature.
A program that does not support a writer feature must not write to the log."""

NO_PASSWORD = "none"  # noqa: S105 (the stored value for a log without a password)
_SCHEME = "hmac-sha256"
_SALT_SIZE_BYTES = 16


def password_check(password: bytes, salt: bytes) -> str:
    """Return the text that the head stores, so that passwords can be compared with this password.

    `salt` is 16 random bytes of this log. The password may be empty.
    """
    if not password:
        return NO_PASSWORD
    return f"{_SCHEME}:{salt.hex()}:{hmac.digest(salt, password, 'sha256').hex()}"


def check_password(log: str, head: LogHead, password: bytes) -> None:
    """Raise an error unless the log may list ledgers with this password.

    If the head stores no check, every password is allowed.

    Raises:
        UnauthorizedError: The log has another password. This error is definite.
        MetadataFormatError: A later release stored the check.
    """
    stored = head.properties.get(PASSWORD_CHECK)
    if stored is not None:
        compare_password(log, stored, password)


def compare_password(log: str, stored: str, password: bytes) -> None:
    """Raise the errors of `check_password` unless `stored` is the check of this password."""
    if hmac.compare_digest(stored, password_check(password, _salt(log, stored))):
        return
    if stored == NO_PASSWORD:
        raise UnauthorizedError(
            f'log {log!r} has no password: leave the option "passwordFile" out. Nothing was '
            "written, because rows with different passwords cannot be read together.",
            log=log,
        )
    wrong = "does not match that of" if password else "is missing; a password protects"
    raise UnauthorizedError(
        f'the option "passwordFile" {wrong} log {log!r}. Nothing was written, because rows with '
        "different passwords cannot be read together.",
        log=log,
    )


def with_password(head: LogHead, password: bytes, salt: bytes) -> LogHead:
    """Return the head with the check of this password, unless the head already has a check."""
    if PASSWORD_CHECK in head.properties:
        return head
    return replace(
        head,
        properties={**head.properties, PASSWORD_CHECK: password_check(password, salt)},
        writer_features=tuple(sorted({*head.writer_features, PASSWORD_CHECK})),
    )


def _salt(log: str, stored: str) -> bytes:
    scheme, _, rest = stored.partition(":")
    if stored == NO_PASSWORD:
        return bytes(_SALT_SIZE_BYTES)
    salt = rest.partition(":")[0]
    if scheme == _SCHEME and len(salt) == 2 * _SALT_SIZE_BYTES:
        try:
            return bytes.fromhex(salt)
        except ValueError:
            pass
    raise MetadataFormatError(
        f"log {log!r} stores its password as {scheme!r}, which this version does not support: use "
        "a later ledgerlog",
        log=log,
    )
