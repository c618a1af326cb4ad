"""The nodes of all logs of one cluster: paths, common operations, and the queue of writers.

The paths are below `<root>-logs`, outside the ledgers root:

    names/<name>                                log id
    ids/<id>                                    empty
    ids/<id>/head                               head
    ids/<id>/pages/<token>                      written by the sweeper, so that a commit fails
    ids/<id>/pages/<token>/<number>             page
    ids/<id>/producers/<app>                    producer record
    ids/<id>/producers/<app>/ledgers/<ledger>   epoch, decimal
    ids/<id>/unlisted/<ledger>                  "listed", "staged", "made": the earlier state
    ids/<id>/queue/<token>-<number>             a writer that waits in the queue; ephemeral
    ids/<id>/candidates/<claim>-<number>        a client that opens or leads the log; ephemeral
    ids/<id>/clock                              written to read the store's clock
    ids/<id>/deleted                            made when the log was deleted

The name of a producer may be any text. A path contains the name in UTF-8, percent-encoded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

from ledgerlog_spark.errors import MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.model import Version


def _path(*above: str) -> Callable[[LogPaths, str, *tuple[str | int, ...]], str]:
    """Create a method that returns the path of a node of a log, or of a node below this node."""

    def path(paths: LogPaths, log_id: str, /, *below: str | int) -> str:
        return "/".join((paths.ids, log_id, *above, *map(str, below)))

    return path


class LogPaths:
    """The paths of the nodes of all logs. `root` is the ledgers root of the cluster."""

    def __init__(self, root: str) -> None:
        self.top = f"{root}-logs"
        self.names = f"{self.top}/names"
        self.ids = f"{self.top}/ids"

    log = _path()
    head = _path("head")
    page = pages = _path("pages")
    producers = _path("producers")
    mark = marks = _path("unlisted")
    queue = _path("queue")
    candidates = _path("candidates")
    clock = _path("clock")
    deleted = _path("deleted")

    def name(self, name: str) -> str:
        """Return the path of the node that stores the id of the log with this name."""
        return f"{self.names}/{name}"

    def producer(self, log_id: str, app: str, *below: str | int) -> str:
        """Return the path of a producer record, or of a node below this record."""
        quoted = quote(app, safe="")
        segment = quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted
        return self.producers(log_id, segment, *below)

    def registration(self, log_id: str, app: str, *ledger_id: int) -> str:
        """Return the path of a registration, or of the node above a producer's registrations."""
        return self.producer(log_id, app, "ledgers", *ledger_id)


T = TypeVar("T")
V = TypeVar("V")

REQUESTS_AT_ONCE = 64


class LogNodes:
    """The nodes of logs on one tree."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self.tree = tree
        self.paths = LogPaths(root)

    async def delete(self, path: str) -> None:
        """Delete a node. Do nothing if the node does not exist or has children."""
        with contextlib.suppress(znodes.NodeMissingError, znodes.NodeNotEmptyError):
            await self.tree.delete(path)

    async def delete_below(self, path: str) -> None:
        """Delete everything below a node."""
        for child in await znodes.children_of(self.tree, path):
            await self.delete_below(f"{path}/{child}")
            await self.delete(f"{path}/{child}")

    async def transact(
        self, operations: Sequence[znodes.NodeOperation]
    ) -> list[znodes.Created | Version | None]:
        """Run all operations. If one fails, change nothing and raise MetadataVersionError."""
        try:
            return await self.tree.transact(operations)
        except znodes.TransactionFailedError as error:
            raise MetadataVersionError(
                f"another process changed the log first: {error.cause}", cause=str(error.cause)
            ) from error


async def read_each(read: Callable[[V], Awaitable[T]], values: Sequence[V]) -> list[T]:
    """Call `read` for each value, and return the results in the order of the values.

    At most 64 calls run at the same time.
    """
    answers: list[T] = []
    for first in range(0, len(values), REQUESTS_AT_ONCE):
        answers += await asyncio.gather(*map(read, values[first : first + REQUESTS_AT_ONCE]))
    return answers


def version_of(result: znodes.Created | Version | None) -> Version:
    """Return the version of a node after an operation of a transaction."""
    assert result is not None
    return result.version if isinstance(result, znodes.Created) else result


class CommitQueue:
    """The queue of waiting writers of one log.

    It reduces the number of requests, but does not protect data. The name of a member is
    `<token>-<ten digits>`. The digits are a counter of the tree, and the member with the lowest
    number is first. The node of a member is deleted when its session ends. Therefore a dead process
    stays in the queue for at most a session time-out.
    """

    def __init__(self, tree: znodes.ZnodeTree, directory: str) -> None:
        """Create the object for the queue in `directory`. Each child of this node is a member."""
        self._tree = tree
        self._directory = directory

    async def join(self, token: str) -> str:
        """Join the queue after all current members, and return the name of the new member.

        After a lost reply, the token in the names of the members shows whether the node was
        created. The member stays in the queue until `leave`, or until the session ends.
        """
        path = f"{self._directory}/{token}-"
        try:
            try:
                created = await self._tree.create(path, kind=znodes.NodeKind.EPHEMERAL_SEQUENTIAL)
            except znodes.NodeMissingError:
                # An earlier release created the log without a queue. Only the node of the queue is
                # created, and not the nodes above it, because a removed log must not be re-created.
                with contextlib.suppress(znodes.NodeExistsError):
                    await self._tree.create(self._directory)
                created = await self._tree.create(path, kind=znodes.NodeKind.EPHEMERAL_SEQUENTIAL)
        except MetadataUnknownError:
            await self._tree.sync(self._directory)
            for name in await self.members():
                if name.startswith(f"{token}-"):
                    return name
            raise
        return created.path.rpartition("/")[2]

    async def members(self) -> Sequence[str]:
        """Return the names of all members of the queue, in the order of the queue."""
        names = await znodes.children_of(self._tree, self._directory)
        return sorted(names, key=lambda name: name.rpartition("-")[2])

    async def until_gone(self, name: str) -> bool:
        """Wait until a member has left. Callers must set a deadline.

        Return whether it is certain that the member has left.
        """
        return await self._tree.until_gone(f"{self._directory}/{name}")

    async def leave(self, name: str) -> None:
        """Remove a member of any session from the queue. Do nothing if the member has left."""
        with contextlib.suppress(znodes.NodeMissingError):
            await self._tree.delete(f"{self._directory}/{name}")
