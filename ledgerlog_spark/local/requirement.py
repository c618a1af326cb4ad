"""Builds the command that installs a required package in a release that ledgerlog supports."""

from __future__ import annotations

import contextlib
import re
from importlib import metadata


def install_command(package: str, *options: str) -> str:
    """Return the command `pip install 'PACKAGE<RELEASES>'`.

    ledgerlog's metadata contains the releases that it supports. The command names only the package
    and never ledgerlog, because another project may have the name ledgerlog in a package index.
    """
    words = ["pip", "install", *options, f"'{_requirement(package)}'"]
    return " ".join(words)


def _requirement(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        for each in metadata.requires("ledgerlog") or ():
            requirement = each.partition(";")[0].strip()
            if re.match(rf"{re.escape(package)}\b(?!-)", requirement):
                return requirement
    return package
