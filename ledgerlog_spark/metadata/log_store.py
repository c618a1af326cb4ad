"""The `LogStore` port on a tree of nodes (DESIGN 6.1, 6.4, 6.6; docs/LOGS.md, Paths).

No path whose version is checked is ever made twice: log ids, tokens and ledger ids are unique, and
a producer's record is deleted only when its name is. So the version number alone, which is all that
a transaction compares, is a sound condition.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerNotFoundError,
    LocalProtocolError,
    LogExistsError,
    LogNotFoundError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.ledger_ids import require_cluster
from ledgerlog_spark.metadata.log_paths import LogPaths, app_of_segment
from ledgerlog_spark.metadata.log_store_port import MarkedLedger, PagesNode
from ledgerlog_spark.metadata.znode_tree import (
    CheckNode,
    Created,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeOperation,
    SetNode,
    TransactionFailedError,
    ZnodeTree,
    make_persistent,
    operations_size_bytes,
    parent_of,
)
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.log_codec import (
    decode_head,
    decode_page,
    decode_producer,
    encode_head,
    encode_producer,
)
from ledgerlog_spark.protocol.log_messages import StagedRegistration
from ledgerlog_spark.protocol.log_records import LogHead, ProducerRecord
from ledgerlog_spark.wire.ledger_metadata import encode_ledger_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ledgerlog_spark.metadata.ledger_store import TreeLedgerStore
    from ledgerlog_spark.metadata.port import CancelWatch, OnChange
    from ledgerlog_spark.protocol.log_messages import WriteHead
    from ledgerlog_spark.protocol.log_pages import PageRequest

TRANSACTION_SIZE_BYTES_MAX = 900_000
REQUESTS_AT_ONCE = 64
ATTEMPTS_MAX = 5
_LISTED, _STAGED = b"listed", b"staged"


class TreeLogStore:
    """Logs beside the ledgers at one root."""

    def __init__(self, tree: ZnodeTree, root: str, ledgers: TreeLedgerStore) -> None:
        """Logs of the cluster at `root`; `ledgers` is the store of the same tree and root."""
        self._tree = tree
        self._root = root
        self._paths = LogPaths(root)
        self._ledgers = ledgers

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
            CreateNode(paths.clock(log_id)),
            CreateNode(paths.head(log_id), encode_head(head)),
        ]
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                done = await self._tree.transact(operations)
            except MetadataUnknownError as error:
                lost = error
            except TransactionFailedError as error:
                if isinstance(error.cause, NodeMissingError):
                    await make_persistent(self._tree, paths.names)
                    await make_persistent(self._tree, paths.ids)
                    continue
                return await self._own_or_taken(head)
            else:
                made = done[-1]
                assert isinstance(made, Created)
                return Versioned(head, made.version)
        raise lost or MetadataUnknownError(
            f"whether log {head.name!r} was created is not known: create it again", log=head.name
        )

    async def _own_or_taken(self, head: LogHead) -> Versioned[LogHead]:
        await self.sync()
        found = await self.read_head(head.log_id)
        if found is None:
            raise LogExistsError(
                f"there is a log {head.name!r} already: open it, or choose another name",
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
            f"no log {name!r}: `ledgerlog logs list` shows what there is; a write from Spark makes "
            "one (option createIfMissing), and so does open_log(name, lead=True)",
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
                f"{head.name!r} names another log by now", log=head.name, log_id=head.log_id
            )
        done = await self._transact(
            [
                SetNode(self._paths.head(head.log_id), encode_head(head), version),
                DeleteNode(name, pointer.version),
                CreateNode(self._paths.deleted(head.log_id)),
            ]
        )
        return _version_of(done[0])

    async def remove_log(self, log_id: str) -> None:
        """See `LogStore.remove_log`."""
        paths = self._paths
        if await self._children(paths.marks(log_id)):
            raise LocalProtocolError(f"log {log_id} still has ledgers to delete", log_id=log_id)
        # A task may register a ledger until its producer record is gone, and a new producer may
        # come until the node above is: both are refused by the store when they are not empty.
        for app in await self.producers(log_id):
            found = await self.read_producer(log_id, app)
            if found is not None:
                await self.delete_producer(log_id, app, found.version)
        with contextlib.suppress(NodeMissingError):
            await self._tree.delete(paths.producers(log_id))
        for name in await self._children(paths.log(log_id)):
            path = f"{paths.log(log_id)}/{name}"
            if path not in {paths.head(log_id), paths.deleted(log_id)}:
                await self._delete_below(path)
                await self._delete(path)
        # Last what says that the log is deleted, so that a crash leaves it to the next sweep.
        for path in (paths.head(log_id), paths.deleted(log_id), paths.log(log_id)):
            await self._delete(path)

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

    async def read_producer(self, log_id: str, app: str) -> Versioned[ProducerRecord] | None:
        """See `LogStore.read_producer`."""
        with contextlib.suppress(NodeMissingError):
            node = await self._tree.get(self._paths.producer(log_id, app))
            return Versioned(decode_producer(node.value), node.version)
        return None

    async def producers(self, log_id: str) -> Sequence[str]:
        """See `LogStore.producers`."""
        segments = await self._children(self._paths.producers(log_id))
        return sorted(map(app_of_segment, segments))

    async def registered(self, log_id: str, app: str) -> Sequence[int]:
        """See `LogStore.registered`."""
        return sorted(map(int, await self._children(self._paths.registrations(log_id, app))))

    async def registered_before(self, log_id: str, app: str, epoch: int) -> Sequence[int]:
        """See `LogStore.registered_before`."""
        ledger_ids = await self.registered(log_id, app)
        older: list[int] = []
        for first in range(0, len(ledger_ids), REQUESTS_AT_ONCE):
            some = ledger_ids[first : first + REQUESTS_AT_ONCE]
            reads = (self._epoch_of(log_id, app, ledger_id) for ledger_id in some)
            epochs = await asyncio.gather(*reads)
            older += [i for i, found in zip(some, epochs, strict=True) if -1 < found < epoch]
        return older

    async def _epoch_of(self, log_id: str, app: str, ledger_id: int) -> int:
        """The epoch that the ledger is registered under, -1 when it is not any more."""
        with contextlib.suppress(NodeMissingError):
            path = self._paths.registration(log_id, app, ledger_id)
            return int((await self._tree.get(path)).value)
        return -1

    async def staged(self, log_id: str, app: str) -> Sequence[StagedRegistration]:
        """See `LogStore.staged`."""
        return [
            StagedRegistration(ledger_id, created_ms)
            async for ledger_id, created_ms, _ in self._ledgers_below(
                self._paths.registrations(log_id, app)
            )
        ]

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
                version = version or _version_of(done[0])
                operations = []
            operations.append(operation)
        done = await self._transact(operations)
        return version or _version_of(done[0])

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
        operations += await self._marks(log_id, write.unlisted, _LISTED)
        return _version_of((await self._transact(operations))[0])

    async def write_producer(
        self,
        log_id: str,
        app: str,
        producer: ProducerRecord,
        version: Version | None,
        deregistered: Sequence[int] = (),
        released: Sequence[int] = (),
    ) -> Version:
        """See `LogStore.write_producer`."""
        path, data = self._paths.producer(log_id, app), encode_producer(producer)
        operations: list[NodeOperation]
        if version is None:
            assert not (*deregistered, *released), "a new producer has no registrations"
            operations = [CreateNode(path, data), CreateNode(f"{path}/ledgers")]
        else:
            operations = [SetNode(path, data, version)]
        for ledger_id in (*deregistered, *released):
            operations.append(DeleteNode(self._paths.registration(log_id, app, ledger_id)))
        operations += await self._marks(log_id, deregistered, _STAGED)
        return _version_of((await self._transact(operations))[0])

    async def delete_producer(self, log_id: str, app: str, version: Version) -> None:
        """See `LogStore.delete_producer`."""
        path = self._paths.producer(log_id, app)
        await self._transact([DeleteNode(f"{path}/ledgers"), DeleteNode(path, version)])

    async def register_ledger(
        self,
        log_id: str,
        app: str,
        epoch: int,
        version: Version,
        ledger_id: int,
        metadata: LedgerMetadata,
    ) -> Versioned[LedgerMetadata]:
        """See `LogStore.register_ledger`."""
        path = self._ledgers.path(ledger_id)
        registration = self._paths.registration(log_id, app, ledger_id)
        operations: list[NodeOperation] = [
            CheckNode(self._paths.producer(log_id, app), version),
            CreateNode(path, encode_ledger_metadata(metadata)),
            CreateNode(registration, str(epoch).encode()),
        ]
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                done = await self._tree.transact(operations)
            except MetadataUnknownError as error:
                lost = error
            except TransactionFailedError as error:
                if isinstance(error.cause, NodeMissingError) and error.index == 1:
                    await make_persistent(self._tree, parent_of(path))
                    continue
                return await self._settle_registration(
                    error, registration, ledger_id, metadata, lost
                )
            else:
                return Versioned(metadata, _version_of(done[1]))
        raise lost or MetadataUnknownError(
            f"whether ledger {ledger_id} was created is not known: abandon it",
            ledger_id=ledger_id,
        )

    async def _settle_registration(
        self,
        failed: TransactionFailedError,
        registration: str,
        ledger_id: int,
        metadata: LedgerMetadata,
        lost: MetadataUnknownError | None,
    ) -> Versioned[LedgerMetadata]:
        """Ours, when an earlier transaction got through and the registration still stands."""
        await self.sync()
        if lost is not None and await self._tree.stat(registration) is not None:
            with contextlib.suppress(LedgerNotFoundError):
                found = await self._ledgers.load(ledger_id)
                if found.value.token == metadata.token:
                    return found
        if isinstance(failed.cause, NodeExistsError):
            raise LedgerExistsError(
                f"ledger id {ledger_id} is taken: use a new one", ledger_id=ledger_id
            )
        raise MetadataVersionError(
            f"the producer of ledger {ledger_id} changed meanwhile; the ledger was not created",
            ledger_id=ledger_id,
        ) from failed

    async def touch_pages(self, log_id: str, token: str) -> Version:
        """See `LogStore.touch_pages`."""
        done = await self._transact([SetNode(self._paths.pages(log_id, token), b"swept", None)])
        return _version_of(done[0])

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
        nodes = []
        for token in await self._children(self._paths.pages(log_id)):
            stat = await self._tree.stat(self._paths.pages(log_id, token))
            if stat is not None:
                nodes.append(PagesNode(token, stat.created_ms))
        return nodes

    async def marked(self, log_id: str) -> Sequence[MarkedLedger]:
        """See `LogStore.marked`."""
        marks = []
        async for ledger_id, _, changed_ms in self._ledgers_below(self._paths.marks(log_id)):
            with contextlib.suppress(NodeMissingError):
                was = (await self._tree.get(self._paths.mark(log_id, ledger_id))).value
                marks.append(MarkedLedger(ledger_id, changed_ms, is_staged=was == _STAGED))
        return marks

    async def forget_mark(self, log_id: str, ledger_id: int) -> None:
        """See `LogStore.forget_mark`."""
        await self._delete(self._paths.mark(log_id, ledger_id))

    async def now_ms(self, log_id: str) -> int:
        """See `LogStore.now_ms`."""
        path = self._paths.clock(log_id)
        try:
            await self._tree.set(path, b"", None)
            stat = await self._tree.stat(path)
        except NodeMissingError:
            stat = None
        if stat is None:
            raise LogNotFoundError(f"the log with id {log_id} is gone", log=log_id)
        return stat.changed_ms

    def watch_head(self, log_id: str, on_change: OnChange) -> CancelWatch:
        """See `LogStore.watch_head`."""
        return self._tree.watch(self._paths.head(log_id), on_change)

    def watch_names(self, on_change: OnChange) -> CancelWatch:
        """See `LogStore.watch_names`."""
        return self._tree.watch_children(self._paths.names, on_change)

    async def sync(self) -> None:
        """See `LogStore.sync`."""
        await self._tree.sync()

    def _page_path(self, log_id: str, page: PageRequest) -> str:
        return self._paths.page(log_id, page.ref.token, page.ref.number)

    async def _marks(
        self, log_id: str, ledger_ids: Sequence[int], was: bytes
    ) -> list[NodeOperation]:
        """Marks for these ledgers; one that is there begins its time of grace anew."""
        operations: list[NodeOperation] = []
        for ledger_id in ledger_ids:
            path = self._paths.mark(log_id, ledger_id)
            if await self._tree.stat(path) is None:
                operations.append(CreateNode(path, was))
            elif was == _LISTED:
                operations.append(SetNode(path, was, None))
        return operations

    async def _ledgers_below(self, path: str) -> AsyncIterator[tuple[int, int, int]]:
        """Ledger id, created and changed ms of each child, by ledger id."""
        ledger_ids = sorted(map(int, await self._children(path)))
        for first in range(0, len(ledger_ids), REQUESTS_AT_ONCE):
            some = ledger_ids[first : first + REQUESTS_AT_ONCE]
            stats = await asyncio.gather(*(self._tree.stat(f"{path}/{i}") for i in some))
            for ledger_id, stat in zip(some, stats, strict=True):
                if stat is not None:
                    yield ledger_id, stat.created_ms, stat.changed_ms

    async def _children(self, path: str) -> list[str]:
        with contextlib.suppress(NodeMissingError):
            return await self._tree.children(path)
        return []

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(NodeMissingError, NodeNotEmptyError):
            await self._tree.delete(path)

    async def _delete_below(self, path: str) -> None:
        for child in await self._children(path):
            await self._delete_below(f"{path}/{child}")
            await self._delete(f"{path}/{child}")

    async def _transact(
        self, operations: Sequence[NodeOperation]
    ) -> list[Created | Version | None]:
        try:
            return await self._tree.transact(operations)
        except TransactionFailedError as error:
            raise MetadataVersionError(
                f"somebody else changed the log first: {error.cause}", cause=str(error.cause)
            ) from error


def _version_of(result: Created | Version | None) -> Version:
    assert result is not None
    return result.version if isinstance(result, Created) else result
