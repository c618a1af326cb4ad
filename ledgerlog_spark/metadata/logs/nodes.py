"""The nodes of all logs of one cluster: their paths, and common operations."""

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
        """Names of the children; empty when the node does not exist."""
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
        """Run all operations or none."""
        try:
            return await self.tree.transact(operations)
        except TransactionFailedError as error:
            raise MetadataVersionError(
                f"another process changed the log first: {error.cause}", cause=str(error.cause)
            ) from error


async def read_each(read: Callable[[V], Awaitable[T]], values: Sequence[V]) -> list[T]:
    """The result of `read` for each value, in their order; some calls run in parallel."""
    answers: list[T] = []
    for first in range(0, len(values), REQUESTS_AT_ONCE):
        answers += await asyncio.gather(*map(read, values[first : first + REQUESTS_AT_ONCE]))
    return answers


def version_of(result: Created | Version | None) -> Version:
    """The version after an operation of a transaction."""
    assert result is not None
    return result.version if isinstance(result, Created) else result
