"""`ledgerlog`: the groups of commands, and the messages and exit codes after errors.

The exit codes are 0: success; 1: failure; 2: wrong usage, or a bookie cannot use its directory; 3:
the outcome is unknown; 4: failure, but the same command may succeed later; 130: interrupted. After
an error of ledgerlog with code 1 or 4, the operation certainly did not happen. `bookie run` ends
with the exit codes of `bookie_server`.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from contextlib import AbstractContextManager
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from ledgerlog_spark.cli import (
    bookies,
    cluster,
    demo,
    doctor,
    local,
    placement,
    probes,
    servers,
    vacations,
)
from ledgerlog_spark.cli.autorecovery import run as autorecovery_run
from ledgerlog_spark.cli.autorecovery import status as autorecovery
from ledgerlog_spark.cli.bookie import cookies, files, inspect, limbo, versions
from ledgerlog_spark.cli.ledgers import check as ledger_check
from ledgerlog_spark.cli.ledgers import commands as ledgers
from ledgerlog_spark.cli.ledgers import losses as ledger_losses
from ledgerlog_spark.cli.ledgers import records as ledger_records
from ledgerlog_spark.cli.logs import changes as log_changes
from ledgerlog_spark.cli.logs import check as log_check
from ledgerlog_spark.cli.logs import commands as logs
from ledgerlog_spark.cli.logs import maintenance as log_upkeep
from ledgerlog_spark.cli.logs import records as log_records
from ledgerlog_spark.errors import ConfigurationError, LedgerLogError, StartupError

FAILED = 1
USAGE = 2
UNKNOWN = 3
RETRIABLE = 4
INTERRUPTED = 130

app = typer.Typer(
    name="ledgerlog",
    help="A replicated log for Apache Spark, which uses the protocol of Apache BookKeeper.",
    epilog="Example: ledgerlog demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(local.app, name="local")
app.add_typer(servers.zookeeper, name="zookeeper")
servers.bookie.add_typer(files.app)
servers.bookie.add_typer(versions.app)
servers.bookie.add_typer(inspect.inspect, name="inspect")
servers.bookie.add_typer(cookies.app, name="cookie")
servers.bookie.add_typer(limbo.app, name="limbo")
app.add_typer(servers.bookie, name="bookie")
app.add_typer(cluster.app, name="cluster")
bookies.app.add_typer(probes.app)
bookies.app.add_typer(placement.app)
bookies.app.add_typer(vacations.app)
app.add_typer(bookies.app, name="bookies")
ledgers.app.add_typer(ledger_check.app)
ledgers.app.add_typer(ledger_records.app)
ledgers.app.add_typer(ledger_losses.app)
app.add_typer(ledgers.app, name="ledgers")
logs.app.add_typer(log_records.app)
logs.app.add_typer(log_changes.app)
logs.app.add_typer(log_upkeep.app)
logs.app.add_typer(log_check.app)
app.add_typer(logs.app, name="logs")
app.add_typer(servers.upkeep, name="upkeep")
autorecovery.app.add_typer(autorecovery_run.app)
app.add_typer(autorecovery.app, name="autorecovery")
app.command("demo", epilog="Example: ledgerlog demo --directory flights-demo")(demo.demo)
app.command("simpletest", epilog="Example: ledgerlog simpletest --entries 100")(probes.simpletest)
app.command("doctor", epilog="Example: ledgerlog doctor --json")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ledgerlog {metadata.version('ledgerlog')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A replicated log for Apache Spark, which uses the protocol of Apache BookKeeper."""


def exit_code(error: LedgerLogError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ConfigurationError | StartupError):
        return USAGE
    if not error.definite:
        return UNKNOWN
    return RETRIABLE if error.retriable else FAILED


def main(interruptible: AbstractContextManager[object] | None = None) -> NoReturn:
    """Run the command line. Print an error of ledgerlog as a message without a traceback.

    Ctrl-C raises KeyboardInterrupt only in the block `interruptible`.
    """
    _encode_everything()
    errors = Console(stderr=True, emoji=False)
    try:
        with interruptible or contextlib.nullcontext():
            # If `standalone_mode` is false, the exit code of a command's `typer.Exit` is returned.
            code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        errors.print("[yellow]interrupted[/]")
        sys.exit(INTERRUPTED)
    except LedgerLogError as error:
        _complain(errors, type(error).__name__, str(error))
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # The program that reads the output has ended, as in `ledgerlog logs read flights | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except OSError as error:
        _complain(errors, "error of the operating system", str(error))
        sys.exit(FAILED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # A usage error of click has the method `format_message`. Typer exports no base class of
        # these errors. The message is empty if a group printed its help because no command was
        # given.
        if message := error.format_message():
            _complain(errors, "usage", message)
            errors.print("run the command with --help to see its options")
        sys.exit(USAGE)
    if code == INTERRUPTED:
        errors.print("[yellow]interrupted[/]")
    sys.exit(code if isinstance(code, int) else 0)


def _encode_everything() -> None:
    """Escape characters that the output does not support. Otherwise they would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if _wants_ascii():
            stream.reconfigure(encoding="ascii", errors="backslashreplace")
        elif not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")


def _wants_ascii() -> bool:
    """Whether an environment variable names the locale C, as in `LC_ALL=C`.

    In this locale, Python writes UTF-8 unless `reconfigure` is called. If no locale is set,
    Python selects C.UTF-8, and the result is False.
    """
    if {"PYTHONIOENCODING", "PYTHONUTF8"} & set(os.environ):
        return False
    chosen = filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG")))
    return next(chosen, "") in {"C", "POSIX"}


def _complain(errors: Console, kind: str, message: str) -> None:
    errors.print(f"[bold red]{kind}[/]: ", end="")
    errors.print(message, markup=False, highlight=False, soft_wrap=True)
