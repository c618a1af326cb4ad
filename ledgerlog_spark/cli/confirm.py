"""The question before a command deletes data or changes what readers see."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ledgerlog_spark.cli.output import console
from ledgerlog_spark.errors import ConfigurationError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, otherwise: str) -> None:
    """Return if the user confirms; otherwise end the command with exit code 1.

    Args:
        question: The question, without its question mark.
        otherwise: The message when the user does not confirm, such as `log x was not deleted`.

    Raises:
        ConfigurationError: Standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{otherwise}: stdin is not a terminal; pass --yes to confirm")
    if not typer.confirm(f"{question}?"):
        console.print(otherwise)
        raise typer.Exit(1)
