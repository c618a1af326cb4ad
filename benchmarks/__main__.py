"""Runs the benchmarks of a release: `python -m benchmarks [OPTIONS]`. Each script gets OPTIONS."""

from __future__ import annotations

import subprocess
import sys

SCRIPTS = (
    "append",
    "read",
    "recovery",
    "bookie_cost",
    "compaction",
    "rereplicate",
    "log_append",
    "tail_latency",
    "spark_write",
    "spark_read",
    "query_overhead",
    "column_pruning",
    "stream_throughput",
    "stream_latency",
)


def main() -> int:
    """Run each script in a process of its own, and return the highest exit code."""
    return max(
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=False
        ).returncode
        for name in SCRIPTS
    )


if __name__ == "__main__":
    sys.exit(main())
