"""`--password-file`: how commands are given the password of ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ledgerlog_spark.errors import ConfigurationError, UnauthorizedError

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the password of the ledgers; empty password if not given."
    ),
]


def password_from(path: Path | None) -> bytes:
    """A password from a file, one newline at its end excluded."""
    if path is None:
        return b""
    try:
        return path.read_bytes().removesuffix(b"\n")
    except OSError as error:
        raise ConfigurationError(
            f"the password file {path} cannot be read: {error.strerror}", path=str(path)
        ) from error


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
