"""The command that installs a package which ledgerlog needs, at a version that it supports."""

from __future__ import annotations

import contextlib
import re
from importlib import metadata


def install_command(package: str, *options: str) -> str:
    """`pip install 'PACKAGE<VERSIONS>'`, with the versions in ledgerlog's metadata.

    It names the package itself and never ledgerlog: no index gets a request for a name that belongs
    to another project.
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
