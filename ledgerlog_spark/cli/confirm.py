"""Asking before something is destroyed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ledgerlog_spark.errors import ConfigurationError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def is_confirmed(question: str, *, otherwise: str) -> bool:
    """Whether the person at the terminal says yes.

    Args:
        question: What is asked, without a question mark.
        otherwise: What did not happen, for the error.

    Raises:
        ConfigurationError: There is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{otherwise}: there is nobody to ask, so say --yes")
    return typer.confirm(f"{question}?")
