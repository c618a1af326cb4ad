"""Passwords out of files, for options and commands that name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import PASSWORD_SIZE_BYTES_MAX

FILE_SIZE_BYTES_MAX = 2 * PASSWORD_SIZE_BYTES_MAX
"""With its line ends; no more is read than what shows that a file is larger."""


def password_from_file(file: str | Path | None, subject: str, **fields: Any) -> bytes:
    """The password that a file holds, without the line ends after it; empty without a file.

    Args:
        file: Its path.
        subject: Of an error's message, such as `the password file x`.
        fields: Of an error.

    Raises:
        ConfigurationError: The file cannot be read, or holds no password or a too long one.
    """
    if file is None:
        return b""
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{subject} cannot be read: {error.strerror}", **fields) from None
    password = content.rstrip(b"\r\n")
    if not password:
        raise ConfigurationError(
            f"{subject} holds no password: write it there, or name no file where there is none",
            **fields,
        )
    if len(content) > FILE_SIZE_BYTES_MAX or len(password) > PASSWORD_SIZE_BYTES_MAX:
        raise ConfigurationError(
            f"{subject} is too large: a password has at most {PASSWORD_SIZE_BYTES_MAX:,} bytes",
            **fields,
        )
    return password
