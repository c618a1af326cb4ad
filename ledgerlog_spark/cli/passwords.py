"""`--password-file`: the password of ledgers, for commands that read or seal them."""

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
        metavar="FILE",
        help="File with the password of the ledgers; by default the password is empty.",
    ),
]


def password_from(path: Path | None) -> bytes:
    """The password in a file, without line ends at its end; empty without a file.

    Raises:
        ConfigurationError: The file cannot be read, is empty, or the password is too long.
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
    """Adds the option for the password to the error of a wrong one."""
    try:
        yield
    except UnauthorizedError as error:
        how = (
            "pass a file with the password by --password-file"
            if path is None
            else f"{path} does not contain it"
        )
        raise UnauthorizedError(f"{error.message} ({how})", **error.fields) from None
