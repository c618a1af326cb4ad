"""Hides the tracebacks of broken pipes in Python workers of Spark.

A query such as `show()` or `limit(1)` may end while its tasks still write. Spark then closes the
sockets of their workers. Spark also closes the sockets of workers that are idle for a minute. In
both cases, PySpark's daemon prints a BrokenPipeError to the driver's terminal, although nothing
failed.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

DAEMON = "pyspark.daemon"


class _WithoutBrokenPipes:
    """Replaces the module `traceback` in PySpark's daemon. It hides broken pipes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Print the current exception. Print nothing for a BrokenPipeError."""
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc()


def hide_broken_pipes() -> None:
    """Hide tracebacks of broken pipes in a worker of PySpark's daemon, and do nothing elsewhere."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == DAEMON and getattr(main, "traceback", None) is traceback:
        vars(main)["traceback"] = _WithoutBrokenPipes()
