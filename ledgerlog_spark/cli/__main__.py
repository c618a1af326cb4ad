"""The `ledgerlog` command, and `python -m ledgerlog_spark.cli`.

Importing the commands takes half a second. Until they handle Ctrl-C themselves it ends the process
as the system does it by default, which prints nothing.
"""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Import the commands and run the one that was asked for."""
    before = signal.getsignal(signal.SIGINT)
    is_ours = before is signal.default_int_handler
    if is_ours:  # `nohup` and parents that ignore the signal are obeyed
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ledgerlog_spark.cli.main import main as run

    run(lambda: signal.signal(signal.SIGINT, before) if is_ours else None)


if __name__ == "__main__":
    main()
