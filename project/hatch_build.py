"""The build hook of the wheel: puts the jar of the JVM engine into the wheel.

An existing jar, such as that of `make shim`, is taken as it is. Otherwise the jar is compiled by
the Scala compiler among the jars of an installed PySpark. Without PySpark or Java, the wheel has no
jar, and `format("ledger")` runs in Python.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface):  # type: ignore[type-arg]
    """Includes the jar in a wheel. An editable installation takes it from the checkout."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jar to the files of the wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        folder = str(root / "project")
        sys.path.insert(0, folder)
        try:
            from build_jar import JAR, NotBuiltError, build_jar
        finally:
            sys.path.remove(folder)
        if not (root / JAR).exists():
            try:
                build_jar(root)
            except NotBuiltError as missing:
                self.app.display_warning(f"the wheel has no jar of the JVM engine: {missing}")
                return
        build_data["force_include"][str(root / JAR)] = JAR.as_posix()
        build_data["pure_python"] = True
