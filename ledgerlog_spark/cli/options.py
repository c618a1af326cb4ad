"""Options and functions that many commands use: groups, cluster, password, confirmation."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgerlog_spark import connect as connected
from ledgerlog_spark.cli.output import console
from ledgerlog_spark.client.password_file import password_from_file
from ledgerlog_spark.composition import metadata as opened_metadata
from ledgerlog_spark.composition import registration as registered
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerNotFoundError,
    LogNotFoundError,
    MetadataUnavailableError,
    UnauthorizedError,
)
from ledgerlog_spark.local.cluster import USUAL_PORT
from ledgerlog_spark.local.members import ZOOKEEPER, Members
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import SERVICE_URI_DEFAULT, SERVICE_URI_VARIABLE

LOCAL_DIRECTORY = Path(".ledgerlog")
"""The default directory of `ledgerlog local`, below the working directory."""

OTHERWISE = "or pass the --metadata-service-uri of another cluster"
LOOK_SECONDS = 2.0


def group(meaning: str, example: str) -> typer.Typer:
    """Make a group of commands. A group prints its help if no command is given."""
    return typer.Typer(
        help=meaning,
        epilog=f"Example: {example}",
        no_args_is_help=True,
        callback=lambda: None,  # without this, typer replaces a group of one command
    )


def chosen_uri(given: str) -> str:
    """Return the given URI, or the URI of the cluster in `.ledgerlog`, or the default URI."""
    if given:
        return given
    members = Members.load(LOCAL_DIRECTORY.absolute())
    zookeeper = members.by_id.get(ZOOKEEPER)
    if zookeeper is None:
        return SERVICE_URI_DEFAULT
    if zookeeper.state == "down":
        stopped = "ZooKeeper of the cluster" if members.running else "the cluster"
        raise MetadataUnavailableError(
            f"{stopped} in ./{LOCAL_DIRECTORY} is stopped: start it with `ledgerlog local up`, "
            f"{OTHERWISE}",
            directory=str(members.directory),
        )
    return f"zk://127.0.0.1:{zookeeper.port}/ledgers"


def _option(callback: Callable[[str], str] | None) -> Any:
    return typer.Option(
        "--metadata-service-uri",
        "-u",
        envvar=SERVICE_URI_VARIABLE,
        help="URI of the cluster: zk://HOST:PORT/ledgers. The default is the cluster in "
        f"./{LOCAL_DIRECTORY}, or else port {USUAL_PORT} of this machine.",
        metavar="URI",
        callback=callback,
        show_default=False,
        show_envvar=False,
    )


DEFAULT_URI = ""
ServiceUri = Annotated[str, _option(chosen_uri)]
GivenUri = Annotated[str, _option(None)]
"""The given URI, or an empty string if no URI is given. `chosen_uri` returns the URI to use."""


@contextlib.contextmanager
def connect(uri: str) -> Iterator[BlockingLogClient]:
    """Connect a client to the cluster at `uri`. The messages of not-found errors name this URI."""
    require_listener(uri)
    with connected(uri) as client:
        try:
            yield client
        except (LogNotFoundError, LedgerNotFoundError) as error:
            error.message += f" (cluster {uri})"
            raise


@contextlib.asynccontextmanager
async def registration(uri: str) -> AsyncIterator[Registration]:
    """Yield the store that contains the registrations of the bookies of the cluster at `uri`."""
    require_listener(uri)
    async with registered(uri) as store:
        yield store


@contextlib.asynccontextmanager
async def metadata(uri: str) -> AsyncIterator[MetadataStores]:
    """Yield the metadata stores of the cluster at `uri`."""
    require_listener(uri)
    async with opened_metadata(uri) as stores:
        yield stores


def require_listener(uri: str) -> None:
    """Raise an error if `uri` is the default URI and no program listens on its port.

    With this check, a user without a cluster gets the error immediately. Without the check, the
    error would come only after the time-out of the connection to ZooKeeper.
    """
    if uri != SERVICE_URI_DEFAULT:
        return
    try:
        socket.create_connection(("localhost", USUAL_PORT), LOOK_SECONDS).close()
    except ConnectionRefusedError:
        raise MetadataUnavailableError(
            f"nothing listens on port {USUAL_PORT} of this machine: start a cluster with "
            f"`ledgerlog local up`, {OTHERWISE}",
            port=USUAL_PORT,
        ) from None
    except OSError:  # the server may only be slow: the client waits longer than this check
        return


PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the password of the ledgers; by default the password is empty.",
    ),
]


def password_from(path: Path | None) -> bytes:
    """Return the password in a file, or empty bytes if `path` is None."""
    return password_from_file(
        path,
        lambda finding: ConfigurationError(f"the password file {path} {finding}", path=str(path)),
    )


@contextlib.contextmanager
def password_explained(path: Path | None) -> Iterator[None]:
    """If the block raises the error for a wrong password, add advice about the password option."""
    try:
        yield
    except UnauthorizedError as error:
        how = (
            "pass a file with the password as --password-file"
            if path is None
            else f"{path} does not contain this password"
        )
        raise UnauthorizedError(f"{error.message} ({how})", **error.fields) from None


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, otherwise: str) -> None:
    """Return if the user confirms. Otherwise print `otherwise`, and end with exit code 1."""
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{otherwise}: stdin is not a terminal; pass --yes to confirm")
    if not typer.confirm(f"{question}?"):
        console.print(otherwise)
        raise typer.Exit(1)
