"""`ledgerlog`: the groups of commands, and what an error becomes.

Exit codes: 0 done; 1 failed, and certainly did not happen; 2 wrong usage; 3 the outcome is not
known; 4 failed, and the same command may succeed later; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console

from ledgerlog_spark.cli import bookies, demo, doctor, ledgers, local, logs, servers
from ledgerlog_spark.errors import ConfigurationError, LedgerLogError

FAILED = 1
USAGE = 2
UNKNOWN = 3
RETRIABLE = 4
INTERRUPTED = 130

app = typer.Typer(
    name="ledgerlog",
    help="A replicated log for Apache Spark, on the protocol of Apache BookKeeper.",
    epilog="Example: ledgerlog demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(local.app, name="local")
app.add_typer(servers.zookeeper, name="zookeeper")
app.add_typer(servers.bookie, name="bookie")
app.add_typer(bookies.app, name="bookies")
app.add_typer(ledgers.app, name="ledgers")
app.add_typer(logs.app, name="logs")
app.command("demo", epilog="Example: ledgerlog demo --directory flights-demo")(demo.demo)
app.command("doctor", epilog="Example: ledgerlog doctor --json")(doctor.doctor)


def exit_code(error: LedgerLogError) -> int:
    """What the shell is told about an error."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if not error.definite:
        return UNKNOWN
    return RETRIABLE if error.retriable else FAILED


def main() -> NoReturn:
    """Run the command line; errors of ours are one sentence on stderr, not a traceback."""
    errors = Console(stderr=True)
    try:
        # Out of standalone mode a command's typer.Exit comes back as the returned code.
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        errors.print("[yellow]interrupted[/]")
        sys.exit(INTERRUPTED)
    except LedgerLogError as error:
        errors.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(exit_code(error))
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # click's own complaints about usage; typer re-exports no common base for them
        errors.print(f"[bold red]usage[/]: {error.format_message()}", soft_wrap=True)
        errors.print("try --help")
        sys.exit(USAGE)
    if code == INTERRUPTED:
        errors.print("[yellow]interrupted[/]")
    sys.exit(code if isinstance(code, int) else 0)
