"""The table of benchmarks has a row for each script."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import __main__ as together

FOLDER = Path(together.__file__).parent
ROW = re.compile(r"^\| `(\w+)[ `]", re.MULTILINE)
COMMANDS = {"compare", "releases"}
"""Commands that compare figures. They have no question of their own."""


def test_every_script_that_prints_figures_has_a_row() -> None:
    table = (FOLDER / "README.md").read_text().partition("\n## ")[0]
    scripts = {
        path.stem
        for path in FOLDER.glob("*.py")
        if not path.stem.startswith("_") and 'if __name__ == "__main__"' in path.read_text()
    }
    children = {"rounds", "bare_tail"}  # other scripts run these
    assert set(ROW.findall(table)) == scripts - COMMANDS - children
    assert set(together.SCRIPTS) <= scripts
