"""The entry point of the `ledgerlog` command and of `python -m ledgerlog_spark.cli`.

A running command handles Ctrl-C itself. But the import of the commands takes half a second, and
Python also needs a moment to exit. During the import and the exit, Ctrl-C has the operating
system's default action: the process ends without output.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


def main() -> NoReturn:
    """Import the commands, and run the selected command."""
    before = signal.getsignal(signal.SIGINT)
    is_ours = before is signal.default_int_handler
    # In a script, `command &` starts with SIGINT ignored. In this case, it must stay ignored.
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ledgerlog_spark.cli.main import main as run

    @contextlib.contextmanager
    def interruptible() -> Iterator[None]:
        try:
            signal.signal(signal.SIGINT, before)
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    run(interruptible() if is_ours else None)


if __name__ == "__main__":
    main()
