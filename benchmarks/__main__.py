"""All benchmarks, one after the other: `python -m benchmarks [options of all]`."""

from __future__ import annotations

import subprocess
import sys

SCRIPTS = (
    "append",
    "read",
    "recovery",
    "bookie_cost",
    "log_append",
    "tail_latency",
    "spark_write",
    "spark_read",
    "stream_latency",
)


def main() -> int:
    """The worst exit code of all scripts; each runs in a process of its own."""
    return max(
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=False
        ).returncode
        for name in SCRIPTS
    )


if __name__ == "__main__":
    sys.exit(main())
