"""`import ledgerlog_spark` imports only the modules that every caller needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark", "grpc", "pyarrow", "pandas", "uvloop", "typer", "rich")


def test_import_of_the_package_pulls_in_no_heavy_library() -> None:
    probe = "import sys, ledgerlog_spark; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(HEAVY) & set(loaded)
