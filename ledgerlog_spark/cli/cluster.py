"""Which cluster a command asks, and what it is told when there is none."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark import connect as connected
from ledgerlog_spark.connect import registration as registered
from ledgerlog_spark.errors import (
    LedgerNotFoundError,
    LogNotFoundError,
    MetadataUnavailableError,
)
from ledgerlog_spark.local.cluster import USUAL_PORT
from ledgerlog_spark.local.members import ZOOKEEPER, Members
from ledgerlog_spark.model import SERVICE_URI_DEFAULT, SERVICE_URI_VARIABLE

if TYPE_CHECKING:
    from ledgerlog_spark.log.clients import BlockingLogClient
    from ledgerlog_spark.metadata.port import Registration

LOCAL_DIRECTORY = Path(".ledgerlog")
"""Where `ledgerlog local` keeps a cluster unless told otherwise: below the working directory."""

OTHERWISE = "or name another cluster with --metadata-service-uri"
LOOK_SECONDS = 2.0


def chosen_uri(given: str) -> str:
    """The given URI, else that of the cluster in `.ledgerlog`, else the usual one.

    Raises:
        MetadataUnavailableError: None was given, and the cluster in `.ledgerlog` is stopped. The
            usual port is then another cluster's, whose logs nobody has asked for.
    """
    if given:
        return given
    members = Members.load(LOCAL_DIRECTORY.absolute())
    zookeeper = members.by_id.get(ZOOKEEPER)
    if zookeeper is None:
        return SERVICE_URI_DEFAULT
    if zookeeper.state == "down":
        what = "ZooKeeper of the cluster" if members.running else "the cluster"
        raise MetadataUnavailableError(
            f"{what} in ./{LOCAL_DIRECTORY} is stopped: start it with `ledgerlog local up`, "
            f"{OTHERWISE}",
            directory=str(members.directory),
        )
    return f"zk://127.0.0.1:{zookeeper.port}/ledgers"


def _option(callback: Callable[[str], str] | None) -> Any:
    return typer.Option(
        "--metadata-service-uri",
        "-u",
        envvar=SERVICE_URI_VARIABLE,
        help="The cluster: zk://HOST:PORT/ledgers. Without it the one in "
        f"./{LOCAL_DIRECTORY}, or on port {USUAL_PORT} of this machine where that directory has "
        "none.",
        metavar="URI",
        callback=callback,
        show_default=False,
        show_envvar=False,
    )


DEFAULT_URI = ""
ServiceUri = Annotated[str, _option(chosen_uri)]
GivenUri = Annotated[str, _option(None)]
"""As it was given, empty when it was not: see `chosen_uri`."""


@contextlib.contextmanager
def connect(uri: str) -> Iterator[BlockingLogClient]:
    """A client of the cluster at `uri`; what is not found there is said to be of that cluster.

    Raises:
        MetadataUnavailableError: It did not answer in time, or nothing listens on the usual port.
    """
    require_listener(uri)
    with connected(uri) as client:
        try:
            yield client
        except (LogNotFoundError, LedgerNotFoundError) as error:
            error.message += f" (cluster {uri})"
            raise


@contextlib.asynccontextmanager
async def registration(uri: str) -> AsyncIterator[Registration]:
    """The registration of the cluster at `uri`.

    Raises:
        MetadataUnavailableError: It did not answer in time, or nothing listens on the usual port.
    """
    require_listener(uri)
    async with registered(uri) as store:
        yield store


def require_listener(uri: str) -> None:
    """Returns when somebody may listen at `uri`, which is asked of the usual one only.

    Who has just arrived and has no cluster is told so at once, not after the time in which a
    ZooKeeper might come up.

    Raises:
        MetadataUnavailableError: Nobody does.
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
    except OSError:  # whoever it is, they have longer to answer
        return
