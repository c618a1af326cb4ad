"""`--password-file`: how commands are given the password of ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ledgerlog_spark.client.password_file import password_from_file
from ledgerlog_spark.errors import ConfigurationError, UnauthorizedError

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the password of the ledgers; empty password if not given."
    ),
]


def password_from(path: Path | None) -> bytes:
    """A password from a file, without the line ends behind it; empty without a file.

    Raises:
        ConfigurationError: The file cannot be read, or holds no password or a too long one.
    """
    if path is None:
        return b""
    try:
        return password_from_file(path)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the password file {path} {error.message}", path=str(path)
        ) from None


@contextlib.contextmanager
def password_explained(path: Path | None) -> Iterator[None]:
    """A wrong password's error says how to give the right one."""
    try:
        yield
    except UnauthorizedError as error:
        how = (
            "give a file that holds it with --password-file"
            if path is None
            else f"{path} does not hold it"
        )
        raise UnauthorizedError(f"{error.message} ({how})", **error.fields) from None
