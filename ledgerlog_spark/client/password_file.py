"""Reads the password from a file whose path is the value of an option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import PASSWORD_SIZE_BYTES_MAX

FILE_SIZE_BYTES_MAX = 2 * PASSWORD_SIZE_BYTES_MAX
"""Maximum size of a password file, including line ends.

The function reads one byte more, so that it detects a larger file."""


def password_from_file(
    file: str | Path | None, error_of: Callable[[str], ConfigurationError]
) -> bytes:
    """Return the password in `file`, without trailing line ends. If `file` is None, return `b""`.

    `error_of` creates the error if the file cannot be read, or if its password is empty or too
    long. The argument of `error_of` describes the problem, such as `cannot be read`.
    """
    if file is None:
        return b""
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise error_of(f"cannot be read: {error.strerror}") from None
    password = content.rstrip(b"\r\n")
    if not password:
        raise error_of("contains no password: write the password into it, or pass no file")
    if len(content) > FILE_SIZE_BYTES_MAX or len(password) > PASSWORD_SIZE_BYTES_MAX:
        raise error_of(f"is too large: a password has at most {PASSWORD_SIZE_BYTES_MAX:,} bytes")
    return password
