"""What this package changes in a Python worker of Spark's that serves it: one traceback less.

A query that ends before its tasks, such as `show()` or `limit(1)`, closes the socket of workers
that still write; and one that was idle for a minute is ended in that way. PySpark's daemon prints
the BrokenPipeError of each to the driver's terminal, although nothing failed.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

DAEMON = "pyspark.daemon"


class _WithoutBrokenPipes:
    """The module `traceback` as PySpark's daemon uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Print the exception that is handled, unless the reader of our rows has ended."""
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc()


def hide_broken_pipes() -> None:
    """In a worker that PySpark's daemon forked; elsewhere, and a second time, without effect."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == DAEMON and getattr(main, "traceback", None) is traceback:
        vars(main)["traceback"] = _WithoutBrokenPipes()
