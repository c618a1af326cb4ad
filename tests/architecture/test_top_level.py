"""The top of the checkout contains only agreed files.

Others would hide those that newcomers need.
"""

from __future__ import annotations

import tomllib
from typing import Final

from tests.architecture.trees import ROOT, assert_none, name, tracked

AGREED: Final = {
    "ledgerlog_spark": "the client and the data source",
    "bookie_server": "the storage server",
    "jvm-shim": "the JVM engine",
    "notebooks": "the tutorials",
    "tests": "the tests",
    "docs": "the documentation",
    "benchmarks": "the benchmarks",
    "deploy": "manifests",
    "project": "the build: sbt looks here for its plugins; the build hook of the wheel",
    "build.sbt": "sbt looks for it here",
    "pyproject.toml": "pip looks for it here",
    "pyspark_ledger.py": 'Spark imports top-level modules named `pyspark_*` for format("ledger")',
    "mkdocs.yml": "MkDocs looks for it here",
    "Makefile": "make looks for it here",
    "requirements.lock": "the versions of all packages",
    "README.md": "the first page",
    "CHANGELOG.md": "changes for users",
    "CONTRIBUTING.md": "for contributors",
    "SECURITY.md": "how to report a vulnerability",
    "LICENSE": "the licence",
    ".ci": "what CI runs",
    ".github": "templates",
    ".gitignore": "git looks for it here",
    ".pre-commit-config.yaml": "pre-commit looks for it here",
    ".scalafmt.conf": "scalafmt looks for it here",
}
"""Names at the top level, with the reason."""


def test_top_level_has_only_agreed_names() -> None:
    assert_none(
        {name(path).partition("/")[0] for path in tracked()} - AGREED.keys(),
        "move it into a folder",
    )


def test_build_hook_and_its_jar_are_where_the_settings_look() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    targets = settings["tool"]["hatch"]["build"]["targets"]
    hook = targets["wheel"]["hooks"]["custom"]["path"]
    assert (ROOT / hook).is_file()
    wanted = [*targets["sdist"]["include"], *settings["tool"]["mypy"]["files"], hook]
    assert [each for each in wanted if not (ROOT / each).exists()] == []
    assert hook.partition("/")[0] in targets["sdist"]["include"]
