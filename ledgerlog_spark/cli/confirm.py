"""Asking before something goes, or what everybody reads changes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ledgerlog_spark.cli.output import console
from ledgerlog_spark.errors import ConfigurationError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, otherwise: str) -> None:
    """Go on only if the person at the terminal says yes; else end the command with 1.

    Args:
        question: What is asked, without a question mark.
        otherwise: What did not happen then.

    Raises:
        ConfigurationError: Standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{otherwise}: stdin is not a terminal; pass --yes to confirm")
    if not typer.confirm(f"{question}?"):
        console.print(otherwise)
        raise typer.Exit(1)
