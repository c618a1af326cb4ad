"""The `LogStore` port on a tree of nodes (LOGS.md#stored-state).

No path whose version is checked is ever made twice: log ids, tokens and ledger ids are unique, and
a producer's record is deleted only when its name is. So the version number alone, which is all that
a transaction compares, is a sound condition.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LogExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.ledgers.ids import require_cluster
from ledgerlog_spark.metadata.logs.commit_queue import TreeCommitQueue
from ledgerlog_spark.metadata.logs.port import PagesNode
from ledgerlog_spark.metadata.logs.producers import (
    ATTEMPTS_MAX,
    LISTED,
    REQUESTS_AT_ONCE,
    TreeLogProducers,
    asked_of_each,
    version_of,
)
from ledgerlog_spark.metadata.tree import (
    CheckNode,
    Created,
    CreateNode,
    DeleteNode,
    NodeMissingError,
    NodeNotEmptyError,
    NodeOperation,
    SetNode,
    TransactionFailedError,
    make_persistent,
    operations_size_bytes,
    unsure_after,
)
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.log.state.codec import (
    decode_head,
    decode_page,
    encode_head,
    encode_producer,
)
from ledgerlog_spark.protocol.log.state.records import LogHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.protocol.log.messages import WriteHead
    from ledgerlog_spark.protocol.log.state.pages import PageRequest

TRANSACTION_SIZE_BYTES_MAX = 900_000
CLOCK_AGE_MS_MAX = 600_000
"""How long the store's clock is counted on from its last answer; a machine's clock that measures
how long things take is wrong by some 30 ms in that time."""
CLOCK_ATTEMPTS_MAX = 3
"""Lost answers of the store's clock after which it counts as out of reach."""


class TreeLogStore(TreeLogProducers):
    """Logs beside the ledgers at one root: names, heads and pages; producers as inherited."""

    async def create_log(self, head: LogHead, pages: Sequence[bytes]) -> Versioned[LogHead]:
        """See `LogStore.create_log`."""
        paths, log_id = self._paths, head.log_id
        token_node = [CreateNode(paths.pages(log_id, head.token))] if pages else []
        operations: list[NodeOperation] = [
            CreateNode(paths.name(head.name), log_id.encode()),
            CreateNode(paths.log(log_id)),
            CreateNode(paths.pages(log_id)),
            *token_node,
            *(
                CreateNode(paths.page(log_id, head.token, number), page)
                for number, page in enumerate(pages)
            ),
            CreateNode(paths.producers(log_id)),
            CreateNode(paths.marks(log_id)),
            CreateNode(paths.queue(log_id)),
            CreateNode(paths.clock(log_id)),
            CreateNode(paths.head(log_id), encode_head(head)),
        ]
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            with unsure_after(lost):
                try:
                    done = await self._tree.transact(operations)
                except MetadataUnknownError as error:
                    lost = error
                except TransactionFailedError as error:
                    if not isinstance(error.cause, NodeMissingError):
                        return await self._own_or_taken(head)
                    await make_persistent(self._tree, paths.names)
                    await make_persistent(self._tree, paths.ids)
                else:
                    made = done[-1]
                    assert isinstance(made, Created)
                    return Versioned(head, made.version)
        raise lost or MetadataUnknownError(
            f"whether log {head.name!r} was created is unknown: create it again", log=head.name
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
        """See `LogStore.find`."""
        for is_synced in (False, True):
            if is_synced:
                await self.sync()
            with contextlib.suppress(NodeMissingError):
                return (await self._tree.get(self._paths.name(name))).value.decode()
        await require_cluster(self._tree, self._root)
        raise LogNotFoundError(
            f"log {name!r} does not exist: `ledgerlog logs list` shows all logs. A write from "
            "Spark (option createIfMissing) or open_log(name, lead=True) creates it",
            log=name,
        )

    async def names(self) -> Sequence[str]:
        """See `LogStore.names`."""
        return await self._children(self._paths.names)

    async def ids(self) -> Sequence[str]:
        """See `LogStore.ids`."""
        return await self._children(self._paths.ids)

    async def delete_log(self, head: LogHead, version: Version) -> Version:
        """See `LogStore.delete_log`."""
        name = self._paths.name(head.name)
        try:
            pointer = await self._tree.get(name)
        except NodeMissingError:
            raise MetadataVersionError(f"log {head.name!r} is deleted", log=head.name) from None
        if pointer.value.decode() != head.log_id:
            raise MetadataVersionError(
                f"{head.name!r} is the name of another log now", log=head.name, log_id=head.log_id
            )
        done = await self._transact(
            [
                SetNode(self._paths.head(head.log_id), encode_head(head), version),
                DeleteNode(name, pointer.version),
                CreateNode(self._paths.deleted(head.log_id)),
            ]
        )
        return version_of(done[0])

    async def remove_log(self, log_id: str) -> bool:
        """See `LogStore.remove_log`."""
        paths = self._paths
        if await self._children(paths.marks(log_id)):
            return False
        # A task may register a ledger until its producer record is gone, and a new producer may
        # come until the node above is: both are refused by the store when they are not empty.
        for app in await self.producers(log_id):
            found = await self.read_producer(log_id, app)
            if found is not None:
                await self.delete_producer(log_id, app, found.version)
        with contextlib.suppress(NodeMissingError):
            await self._tree.delete(paths.producers(log_id))
        # A leader may make a ledger, and another pass mark one that it cannot seal, until there is
        # no place for a mark.
        try:
            await self._tree.delete(paths.marks(log_id))
        except NodeMissingError:
            pass
        except NodeNotEmptyError:
            return False
        # First the head: without it the rest is only to be removed, whoever dies on the way, while
        # a head whose pages are gone says nothing of its ledgers. Last what says why it is gone.
        await self._delete(paths.head(log_id))
        for name in await self._children(paths.log(log_id)):
            path = f"{paths.log(log_id)}/{name}"
            if path != paths.deleted(log_id):
                await self._delete_below(path)
                await self._delete(path)
        for path in (paths.deleted(log_id), paths.log(log_id)):
            await self._delete(path)
        return True

    async def deleted_ms(self, log_id: str) -> int | None:
        """See `LogStore.deleted_ms`."""
        stat = await self._tree.stat(self._paths.deleted(log_id))
        return None if stat is None else stat.created_ms

    async def read_head(self, log_id: str) -> Versioned[LogHead] | None:
        """See `LogStore.read_head`."""
        with contextlib.suppress(NodeMissingError):
            node = await self._tree.get(self._paths.head(log_id))
            return Versioned(decode_head(node.value), node.version)
        return None

    async def read_pages(
        self, log_id: str, pages: Sequence[PageRequest]
    ) -> tuple[tuple[Any, ...], ...] | None:
        """See `LogStore.read_pages`."""
        records: list[tuple[Any, ...]] = []
        for first in range(0, len(pages), REQUESTS_AT_ONCE):
            some = pages[first : first + REQUESTS_AT_ONCE]
            reads = (self._tree.get(self._page_path(log_id, page)) for page in some)
            for page, node in zip(
                some, await asyncio.gather(*reads, return_exceptions=True), strict=True
            ):
                if isinstance(node, NodeMissingError):
                    return None
                if isinstance(node, BaseException):
                    raise node
                records.append(decode_page(page.kind, node.value))
        return tuple(records)

    async def write_pages(self, log_id: str, token: str, pages: Sequence[bytes]) -> Version:
        """See `LogStore.write_pages`."""
        operations: list[NodeOperation] = [CreateNode(self._paths.pages(log_id, token))]
        version: Version | None = None
        for number, page in enumerate(pages):
            operation = CreateNode(self._paths.page(log_id, token, number), page)
            if operations_size_bytes((*operations, operation)) > TRANSACTION_SIZE_BYTES_MAX:
                done = await self._transact(operations)
                version = version or version_of(done[0])
                operations = []
            operations.append(operation)
        done = await self._transact(operations)
        return version or version_of(done[0])

    async def write_head(self, log_id: str, write: WriteHead) -> Version:
        """See `LogStore.write_head`."""
        paths = self._paths
        operations: list[NodeOperation] = [
            SetNode(paths.head(log_id), encode_head(write.head), write.head_version)
        ]
        if write.app is not None:
            assert write.producer is not None
            record = encode_producer(write.producer)
            path = paths.producer(log_id, write.app)
            operations.append(SetNode(path, record, write.producer_version))
        if write.pages_version is not None:
            operations.append(CheckNode(paths.pages(log_id, write.token), write.pages_version))
        operations += await self._listings(log_id, write.listed, write.head_version)
        operations += await self._marks(log_id, write.unlisted, LISTED)
        return version_of((await self._transact(operations))[0])

    async def touch_pages(self, log_id: str, token: str) -> Version:
        """See `LogStore.touch_pages`."""
        done = await self._transact([SetNode(self._paths.pages(log_id, token), b"swept", None)])
        return version_of(done[0])

    async def delete_pages(self, log_id: str, token: str, kept: Sequence[int]) -> None:
        """See `LogStore.delete_pages`."""
        above = self._paths.pages(log_id, token)
        for number in await self._children(above):
            if int(number) not in kept:
                await self._delete(f"{above}/{number}")
        if not kept:
            await self._delete(above)

    async def page_nodes(self, log_id: str) -> Sequence[PagesNode]:
        """See `LogStore.page_nodes`."""
        tokens = await self._children(self._paths.pages(log_id))
        paths = [self._paths.pages(log_id, token) for token in tokens]
        stats = await asked_of_each(self._tree.stat, paths)
        return [
            PagesNode(token, stat.created_ms)
            for token, stat in zip(tokens, stats, strict=True)
            if stat is not None
        ]

    async def now_ms(self, log_id: str) -> int:
        """See `LogStore.now_ms`."""
        try:
            await self._ask_clock(self._paths.clock(log_id))
        except NodeMissingError:
            raise LogNotFoundError(f"the log with id {log_id} is gone", log=log_id) from None
        return self.clock_ms()

    async def recent_ms(self) -> int:
        """See `LogStore.recent_ms`."""
        found_ms = self._tree.clock.estimate_ms(CLOCK_AGE_MS_MAX)
        if found_ms is not None:
            return found_ms
        try:
            await self._ask_clock(self._paths.top)
        except NodeMissingError:
            await require_cluster(self._tree, self._root)
            await make_persistent(self._tree, self._paths.ids)
            await self._ask_clock(self._paths.top)
        return self.clock_ms()

    def clock_ms(self) -> int:
        """See `LogStore.clock_ms`."""
        return self._tree.clock.estimate_ms() or 0

    def queue(self, log_id: str) -> TreeCommitQueue:
        """See `LogStore.queue`."""
        return TreeCommitQueue(self._tree, self._paths.queue(log_id))

    def watch_head(self, log_id: str, on_change: OnChange) -> CancelWatch:
        """See `LogStore.watch_head`."""
        return self._tree.watch(self._paths.head(log_id), on_change)

    def watch_names(self, on_change: OnChange) -> CancelWatch:
        """See `LogStore.watch_names`."""
        return self._tree.watch_children(self._paths.names, on_change)

    async def _ask_clock(self, path: str) -> None:
        """Write a node that only dates; again while answers are lost, as reads are."""
        for _ in range(CLOCK_ATTEMPTS_MAX):
            with contextlib.suppress(MetadataUnknownError):
                await self._tree.set(path, b"", None)
                return
        raise MetadataUnavailableError(
            f"the metadata store's time could not be read: {CLOCK_ATTEMPTS_MAX} answers were lost",
            path=path,
        )

    def _page_path(self, log_id: str, page: PageRequest) -> str:
        return self._paths.page(log_id, page.ref.token, page.ref.number)

    async def _delete_below(self, path: str) -> None:
        for child in await self._children(path):
            await self._delete_below(f"{path}/{child}")
            await self._delete(f"{path}/{child}")
