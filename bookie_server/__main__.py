"""Runs one bookie as a process.

    python -m bookie_server --directory DIR --port N --metadata-service-uri zk://host:port/ledgers

When the bookie is ready, it prints one line of JSON with bookie_id, port, grpc_port and pid. Log
lines go to standard error. SIGTERM and SIGINT stop the bookie cleanly.
`bookie_server.errors.ExitCode` lists the exit codes.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from bookie_server.config import BookieSettings, load_settings
from bookie_server.errors import BookieServerError, ExitCode
from ledgerlog_spark.errors import (
    ConfigurationError,
    LocalProtocolError,
    MetadataError,
    StartupError,
)

STANDARD_OUTPUT = 1
STANDARD_ERROR = 2

_OPTIONS = {
    "metadata_service_uri": ("-u", "--metadata-service-uri"),
    "directories": ("-d", "--directory"),
    "without_directories": ("--without-directory",),
}
"""Options with shorter names than their settings. Other commands have `-u` and `-d` too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one bookie, and return the exit code."""
    _open_closed_standard_streams()
    given = vars(settings_parser().parse_args(arguments))
    config: Path | None = given.pop("config")
    overrides = {name: value for name, value in given.items() if value is not None}
    try:
        settings = load_settings(config, overrides)
    except ConfigurationError as error:
        return _refuse(error, ExitCode.BAD_CONFIGURATION)
    # The C core of grpc writes its log lines in the thread of the event loop. If standard error is
    # a full pipe, such a write would block the event loop. So these log lines are switched off.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Imported only here, so that a wrong setting is reported before grpc and kazoo are imported.
    from bookie_server.service.logging import configure_logging
    from bookie_server.service.process import run_bookie

    lines = configure_logging(settings.log_level)
    try:
        return int(_runner()(run_bookie(settings, lambda: lines.dropped)))
    except ConfigurationError as error:
        return _refuse(error, ExitCode.BAD_CONFIGURATION)
    except (StartupError, LocalProtocolError) as error:
        return _refuse(error, ExitCode.REFUSED_TO_START)
    except BookieServerError as error:
        return _refuse(error, ExitCode.STORAGE_FAILED)
    except MetadataError as error:
        return _refuse(error, ExitCode.METADATA_UNAVAILABLE)


def _refuse(error: Exception, exit_code: ExitCode) -> int:
    sys.stderr.write(f"bookie: {error}\n")
    return int(exit_code)


def _open_closed_standard_streams() -> None:
    """Open the standard streams that are closed.

    Otherwise a data file could get the number of a closed stream. Log lines would then be written
    into the data file.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(descriptor)
    for name, number in (("stdout", STANDARD_OUTPUT), ("stderr", STANDARD_ERROR)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def _runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    runner: Callable[[Coroutine[Any, Any, Any]], Any] = uvloop.run
    return runner


def settings_parser() -> argparse.ArgumentParser:
    """Return a parser with one option for each setting. `BookieSettings` checks the values."""
    parser = argparse.ArgumentParser(
        prog="python -m bookie_server",
        description="Run one bookie. Options override the environment (LEDGERLOG_...), and the "
        "environment overrides the file.",
        epilog="example: python -m bookie_server --directory data/b1 --port 3181 "
        "--metadata-service-uri zk://127.0.0.1:2181/ledgers",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with settings")
    meanings = _meanings()
    for name, field in BookieSettings.model_fields.items():
        options = _OPTIONS.get(name, ("--" + name.replace("_", "-"),))
        if field.annotation == tuple[Path, ...]:
            parser.add_argument(
                *options,
                dest=name,
                metavar="DIR",
                action="append",
                type=Path,
                help=meanings.get(name),
            )
            continue
        if field.annotation is bool and field.default:
            parser.add_argument(
                *options,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=meanings.get(name),
            )
        elif field.annotation is bool:
            parser.add_argument(
                *options, action="store_true", default=None, help=meanings.get(name)
            )
        else:
            value = field.default.value if isinstance(field.default, Enum) else field.default
            default = "" if value is None else f" Default: {value}."
            meaning = meanings.get(name, "") + default
            parser.add_argument(*options, metavar="VALUE", help=meaning)
    return parser


def _meanings() -> dict[str, str]:
    """Return the meaning of each setting, from the docstring of the settings."""
    attributes = (inspect.getdoc(BookieSettings) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^ {4}(\w+): ((?:.*\n?)(?: {8}.*\n?)*)", attributes, re.MULTILINE)
    return {name: " ".join(meaning.split()).replace("%", "%%") for name, meaning in found}


if __name__ == "__main__":
    sys.exit(main())
