"""The nodes of all logs of one cluster: the paths of nodes, and common operations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.metadata.logs.paths import LogPaths
from ledgerlog_spark.metadata.tree import (
    Created,
    NodeMissingError,
    NodeNotEmptyError,
    NodeOperation,
    TransactionFailedError,
    ZnodeTree,
)
from ledgerlog_spark.model import Version

T = TypeVar("T")
V = TypeVar("V")

REQUESTS_AT_ONCE = 64


class LogNodes:
    """The nodes of logs on one tree."""

    def __init__(self, tree: ZnodeTree, root: str) -> None:
        self.tree = tree
        self.paths = LogPaths(root)

    async def children(self, path: str) -> list[str]:
        """Names of the children of a node; empty when the node does not exist."""
        with contextlib.suppress(NodeMissingError):
            return await self.tree.children(path)
        return []

    async def delete(self, path: str) -> None:
        """Delete a node; does nothing if it does not exist or has children."""
        with contextlib.suppress(NodeMissingError, NodeNotEmptyError):
            await self.tree.delete(path)

    async def delete_below(self, path: str) -> None:
        """Delete everything below a node."""
        for child in await self.children(path):
            await self.delete_below(f"{path}/{child}")
            await self.delete(f"{path}/{child}")

    async def transact(self, operations: Sequence[NodeOperation]) -> list[Created | Version | None]:
        """Run all operations or none; raises MetadataVersionError if an operation fails."""
        try:
            return await self.tree.transact(operations)
        except TransactionFailedError as error:
            raise MetadataVersionError(
                f"another process changed the log first: {error.cause}", cause=str(error.cause)
            ) from error


async def read_each(read: Callable[[V], Awaitable[T]], values: Sequence[V]) -> list[T]:
    """Call `read` for each value, some calls in parallel; the results are in the values' order."""
    answers: list[T] = []
    for first in range(0, len(values), REQUESTS_AT_ONCE):
        answers += await asyncio.gather(*map(read, values[first : first + REQUESTS_AT_ONCE]))
    return answers


def version_of(result: Created | Version | None) -> Version:
    """The version of a node after an operation of a transaction."""
    assert result is not None
    return result.version if isinstance(result, Created) else result
