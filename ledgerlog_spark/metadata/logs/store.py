"""Heads, pages and transactions of logs on a tree of nodes (LOGS.md#stored-state).

Transactions compare only the numbers of versions. These numbers are enough, because no path with a
compared version is created twice. Log ids, tokens and ledger ids are unique, and the name of a
deleted producer is never used again.

Reads may be stale until `sync`. If a write succeeds, its call returns. Otherwise the call raises
`MetadataVersionError` (a node had another version), `MetadataUnavailableError` (nothing was sent)
or `MetadataUnknownError`. The first two errors are definite. If a node cannot be decoded, its read
raises `MetadataFormatError` or `WireFormatError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ledgerlog_spark.errors import (
    LogExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.ids import require_cluster
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.candidates import CandidateNodes
from ledgerlog_spark.metadata.logs.nodes import (
    CommitQueue,
    LogNodes,
    read_each,
    version_of,
)
from ledgerlog_spark.metadata.logs.producers import ATTEMPTS_MAX, LISTED, LogProducers
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.codec import (
    decode_head,
    decode_page,
    encode_head,
    encode_producer,
)
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import LogHead

TRANSACTION_SIZE_BYTES_MAX = 900_000
CLOCK_AGE_MS_MAX = 600_000
"""Maximum age of an answer from which the time of the store's clock is estimated.

In this time, the local clock deviates by about 30 ms."""
CLOCK_ATTEMPTS_MAX = 3
"""Number of lost answers after which the time of the store's clock cannot be read."""


class LogStore:
    """The logs of the cluster at one root: names, heads and pages."""

    def __init__(self, tree: znodes.ZnodeTree, root: str, ledgers: LedgerStore) -> None:
        """Create the store of the logs of the cluster at `root`.

        `ledgers` has the same tree and root.
        """
        self._tree = tree
        self._root = root
        self._nodes = nodes = LogNodes(tree, root)
        self._paths = nodes.paths
        self.producers = LogProducers(nodes, ledgers)

    async def create_log(self, head: LogHead, pages: Sequence[bytes]) -> Versioned[LogHead]:
        """Create a log with `head.name` and `head.log_id`, in one transaction.

        After a lost reply, the log is read, and its id shows whether this client created the log.
        LogExistsError is raised if another log has the name. After a MetadataUnknownError, a retry
        with the same head is safe.
        """
        paths, log_id = self._paths, head.log_id
        token_node = [znodes.CreateNode(paths.pages(log_id, head.token))] if pages else []
        operations: list[znodes.NodeOperation] = [
            znodes.CreateNode(paths.name(head.name), log_id.encode()),
            znodes.CreateNode(paths.log(log_id)),
            znodes.CreateNode(paths.pages(log_id)),
            *token_node,
            *(
                znodes.CreateNode(paths.page(log_id, head.token, number), page)
                for number, page in enumerate(pages)
            ),
            znodes.CreateNode(paths.producers(log_id)),
            znodes.CreateNode(paths.marks(log_id)),
            znodes.CreateNode(paths.queue(log_id)),
            znodes.CreateNode(paths.clock(log_id)),
            znodes.CreateNode(paths.head(log_id), encode_head(head)),
        ]
        attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    done = await self._tree.transact(operations)
                except znodes.TransactionFailedError as error:
                    if not isinstance(error.cause, znodes.NodeMissingError):
                        return await self._own_or_taken(head)
                    await znodes.make_persistent(self._tree, paths.names)
                    await znodes.make_persistent(self._tree, paths.ids)
                else:
                    return Versioned(head, version_of(done[-1]))
        raise attempts.lost or MetadataUnknownError(
            f"it is unknown whether log {head.name!r} was created: create it again", log=head.name
        )

    async def _own_or_taken(self, head: LogHead) -> Versioned[LogHead]:
        await self.sync()
        found = await self.read_head(head.log_id)
        if found is None:
            raise LogExistsError(
                f"log {head.name!r} already exists: open it, or choose another name",
                log=head.name,
            )
        return found

    async def find(self, name: str) -> str:
        """Return the id of the log with this name. LogNotFoundError is raised only after a sync."""
        for is_synced in (False, True):
            if is_synced:
                await self.sync()
            node = await znodes.get_or_none(self._tree, self._paths.name(name))
            if node is not None:
                return node.value.decode()
        await require_cluster(self._tree, self._root)
        raise LogNotFoundError(
            f"log {name!r} does not exist: `ledgerlog logs list` shows all logs. A write from "
            "Spark (option createIfMissing) or open_log(name, lead=True) creates it",
            log=name,
        )

    async def names(self) -> Sequence[str]:
        """Return the names of all logs, sorted."""
        return await znodes.children_of(self._tree, self._paths.names)

    async def ids(self) -> Sequence[str]:
        """Return the ids of all logs, sorted, including deleted logs that were not removed yet."""
        return await znodes.children_of(self._tree, self._paths.ids)

    async def delete_log(
        self, head: LogHead, version: Version, *, producers: Mapping[str, Version] | None = None
    ) -> Version:
        """Delete a log. One transaction frees its name, and stores the deletion in its head.

        MetadataVersionError is raised if the head has another version, or another log has the name.
        If `producers` is given, these producers are also deleted, and no job can begin afterwards.
        In this case, the error is also raised if one of these producers has another version or a
        registered ledger, or if the log has other producers.
        """
        name = self._paths.name(head.name)
        pointer = await znodes.get_or_none(self._tree, name)
        if pointer is None:
            raise MetadataVersionError(f"log {head.name!r} is deleted", log=head.name)
        if pointer.value.decode() != head.log_id:
            raise MetadataVersionError(
                f"{head.name!r} is the name of another log now", log=head.name, log_id=head.log_id
            )
        done = await self._nodes.transact(
            [
                znodes.SetNode(self._paths.head(head.log_id), encode_head(head), version),
                znodes.DeleteNode(name, pointer.version),
                znodes.CreateNode(self._paths.deleted(head.log_id)),
                *([] if producers is None else self.producers.deletions(head.log_id, producers)),
            ]
        )
        return version_of(done[0])

    async def remove_log(self, log_id: str) -> bool:
        """Remove the last nodes of a deleted log. Do nothing if the nodes are already removed.

        Return whether the nodes are removed now. If a ledger still has a mark, the head and the
        marks stay. Raise MetadataVersionError if a ledger is still registered, or if a producer was
        created.
        """
        paths = self._paths
        if await znodes.children_of(self._tree, paths.marks(log_id)):
            return False
        # A task may register a ledger until its producer record is deleted, and a new producer may
        # be created until the node above all producers is deleted. The store refuses to delete a
        # node that is not empty.
        for app in await self.producers.names(log_id):
            found = await self.producers.read(log_id, app)
            if found is not None:
                await self.producers.delete(log_id, app, found.version)
        with contextlib.suppress(znodes.NodeMissingError):
            await self._tree.delete(paths.producers(log_id))
        # Until the node for marks is deleted, a leader may create a ledger, and another pass may
        # mark a ledger that it cannot seal.
        try:
            await self._tree.delete(paths.marks(log_id))
        except znodes.NodeMissingError:
            pass
        except znodes.NodeNotEmptyError:
            return False
        # The head is deleted first, because the list of a head without its pages cannot be read. If
        # this process dies after that, a later call removes the other nodes. The node that marks
        # the deletion is deleted last.
        await self._nodes.delete(paths.head(log_id))
        for name in await znodes.children_of(self._tree, paths.log(log_id)):
            path = f"{paths.log(log_id)}/{name}"
            if path != paths.deleted(log_id):
                await self._nodes.delete_below(path)
                await self._nodes.delete(path)
        for path in (paths.deleted(log_id), paths.log(log_id)):
            await self._nodes.delete(path)
        return True

    async def deleted_ms(self, log_id: str) -> int | None:
        """Return when the log was deleted, by the store's clock; None if it is not deleted."""
        stat = await self._tree.stat(self._paths.deleted(log_id))
        return None if stat is None else stat.created_ms

    async def read_head(self, log_id: str) -> Versioned[LogHead] | None:
        """Return the head of a log; None if this replica of the store has no such head."""
        node = await znodes.get_or_none(self._tree, self._paths.head(log_id))
        return Versioned(decode_head(node.value), node.version) if node is not None else None

    async def read_pages(
        self, log_id: str, pages: Sequence[PageRequest]
    ) -> tuple[tuple[Any, ...], ...] | None:
        """Return the content of each page, in the order of `pages`; None if a page is missing."""
        paths = [self._paths.page(log_id, each.ref.token, each.ref.number) for each in pages]
        with contextlib.suppress(znodes.NodeMissingError):
            nodes = await read_each(self._tree.get, paths)
            found = zip(pages, nodes, strict=True)
            return tuple(decode_page(page.kind, node.value) for page, node in found)
        return None

    async def write_pages(self, log_id: str, token: str, pages: Sequence[bytes]) -> Version:
        """Create the node `pages/<token>` and its pages.

        Return the version of this node for the commit.
        """
        operations: list[znodes.NodeOperation] = [
            znodes.CreateNode(self._paths.pages(log_id, token))
        ]
        version: Version | None = None
        for number, page in enumerate(pages):
            operation = znodes.CreateNode(self._paths.page(log_id, token, number), page)
            if znodes.operations_size_bytes((*operations, operation)) > TRANSACTION_SIZE_BYTES_MAX:
                done = await self._nodes.transact(operations)
                version = version or version_of(done[0])
                operations = []
            operations.append(operation)
        done = await self._nodes.transact(operations)
        return version or version_of(done[0])

    async def write_head(self, log_id: str, write: WriteHead) -> Version:
        """Run the transaction that `write` describes. Return the new version of the head.

        Raises:
            MetadataVersionError: The head, the producer record or the node of the pages has another
                version. Nothing was changed.
            LedgerNotFoundError: A ledger that `write` lists was claimed (`claim_made`) or deleted.
                Nothing was changed, and no change that lists the ledger can ever succeed.
        """
        paths = self._paths
        operations: list[znodes.NodeOperation] = [
            znodes.SetNode(paths.head(log_id), encode_head(write.head), write.head_version)
        ]
        if write.app is not None:
            assert write.producer is not None
            record = encode_producer(write.producer)
            path = paths.producer(log_id, write.app)
            operations.append(znodes.SetNode(path, record, write.producer_version))
        if write.pages_version is not None:
            path = paths.pages(log_id, write.token)
            operations.append(znodes.CheckNode(path, write.pages_version))
        operations += await self.producers.listings(log_id, write.listed, write.head_version)
        operations += await self.producers.marks(log_id, write.unlisted, LISTED)
        return version_of((await self._nodes.transact(operations))[0])

    async def touch_pages(self, log_id: str, token: str) -> Version:
        """Write the node `pages/<token>`, so that a commit that checks the node's version fails."""
        done = await self._nodes.transact(
            [znodes.SetNode(self._paths.pages(log_id, token), b"swept", None)]
        )
        return version_of(done[0])

    async def delete_pages(self, log_id: str, token: str, kept: Sequence[int]) -> None:
        """Delete the pages of a token that are not in `kept`.

        If `kept` is empty, also delete the node of the token.
        """
        above = self._paths.pages(log_id, token)
        for number in await znodes.children_of(self._tree, above):
            if int(number) not in kept:
                await self._nodes.delete(f"{above}/{number}")
        if not kept:
            await self._nodes.delete(above)

    async def page_nodes(self, log_id: str) -> dict[str, int]:
        """Return when the node of each token was created, by the store's clock, sorted by token."""
        tokens = await znodes.children_of(self._tree, self._paths.pages(log_id))
        paths = [self._paths.pages(log_id, token) for token in tokens]
        stats = await read_each(self._tree.stat, paths)
        found = zip(tokens, stats, strict=True)
        return {token: stat.created_ms for token, stat in found if stat is not None}

    async def now_ms(self, log_id: str) -> int:
        """Write a node, and return the time of the store's clock from the answer.

        Deletions calculate ages from this time. The time is never later than the time of the
        store's clock.
        """
        try:
            await self._ask_clock(self._paths.clock(log_id))
        except znodes.NodeMissingError:
            raise LogNotFoundError(f"the log with id {log_id} was deleted", log=log_id) from None
        return self.clock_ms()

    async def recent_ms(self) -> int:
        """Estimate the time of the store's clock from its last answer and the time since then.

        The estimate is never later than the time of the store's clock. New nodes store this time.
        If there was no answer in the last 10 minutes, a write gets a new answer. Otherwise no
        request is sent.
        """
        found_ms = self._tree.clock.estimate_ms(CLOCK_AGE_MS_MAX)
        if found_ms is not None:
            return found_ms
        try:
            await self._ask_clock(self._paths.top)
        except znodes.NodeMissingError:
            await require_cluster(self._tree, self._root)
            await znodes.make_persistent(self._tree, self._paths.ids)
            await self._ask_clock(self._paths.top)
        return self.clock_ms()

    def clock_ms(self) -> int:
        """Return the estimate of `recent_ms` from an answer of any age; 0 without an answer."""
        return self._tree.clock.estimate_ms() or 0

    def queue(self, log_id: str) -> CommitQueue:
        """Return the queue in which writers of the log wait. The call sends no request."""
        return CommitQueue(self._tree, self._paths.queue(log_id))

    def candidates(self, log_id: str) -> CandidateNodes:
        """Return the candidates of a leader log. The call sends no request."""
        return CandidateNodes(self._tree, self._paths.candidates(log_id))

    def watch_session(self, on_replaced: znodes.OnChange) -> znodes.CancelWatch:
        """Watch the session.

        `on_replaced` is called after a new session replaced the lost session.
        """
        return self._tree.watch_session(on_replaced)

    def watch_head(self, log_id: str, on_change: znodes.OnChange) -> znodes.CancelWatch:
        """Watch the head of a log. `on_change` is called after a change or a new session."""
        return self._tree.watch(self._paths.head(log_id), on_change)

    def watch_names(self, on_change: znodes.OnChange) -> znodes.CancelWatch:
        """Watch the names of logs. `on_change` is called after a change or a new session."""
        return self._tree.watch_children(self._paths.names, on_change)

    async def sync(self) -> None:
        """Sync with the store, so that later reads return the present state or a newer state."""
        await self._tree.sync()

    async def _ask_clock(self, path: str) -> None:
        """Write a node to get the store's time. Retry if the answer is lost."""
        for _ in range(CLOCK_ATTEMPTS_MAX):
            with contextlib.suppress(MetadataUnknownError):
                await self._tree.set(path, b"", None)
                return
        raise MetadataUnavailableError(
            f"the metadata store's time could not be read: {CLOCK_ATTEMPTS_MAX} answers were lost",
            path=path,
        )
