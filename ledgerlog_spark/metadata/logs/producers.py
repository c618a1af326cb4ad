"""Producers of logs: producer records, registered ledgers, and the marks of unlisted ledgers.

A mark shows that a ledger may be unlisted: no version lists the ledger, or the leader that created
it may still list it. After a grace period, the sweeper deletes those marked ledgers that no version
lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerNotFoundError,
    LogNotFoundError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.nodes import LogNodes, read_each, version_of
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.log.state.codec import decode_producer, encode_producer
from ledgerlog_spark.protocol.log.state.records import ProducerRecord
from ledgerlog_spark.wire.ledger_metadata.record import encode_ledger_metadata

ATTEMPTS_MAX = 5
LISTED, STAGED, MADE = b"listed", b"staged", b"made"
"""The values of a mark. A value is the state of the ledger before it was marked.

`MADE` means that a leader created the ledger, and may still list it."""


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A ledger with a mark, and the time of the mark by the store's clock.

    No version lists the ledger, unless `is_made` is true.
    """

    ledger_id: int
    marked_ms: int
    is_staged: bool  # it was never listed, so no reader uses it
    is_made: bool = False  # a leader created the ledger, and may still list it


class LogProducers:
    """Producer records, registrations of ledgers, and marks of all logs of one cluster."""

    def __init__(self, nodes: LogNodes, ledgers: LedgerStore) -> None:
        """Create the store of the producers of the logs on `nodes`.

        `ledgers` has the same tree and root.
        """
        self._nodes = nodes
        self._tree = nodes.tree
        self._paths = nodes.paths
        self._ledgers = ledgers

    async def read(self, log_id: str, app: str) -> Versioned[ProducerRecord] | None:
        """Return the record of a producer; None if this replica of the store has no such record."""
        node = await znodes.get_or_none(self._tree, self._paths.producer(log_id, app))
        return Versioned(decode_producer(node.value), node.version) if node is not None else None

    async def names(self, log_id: str) -> Sequence[str]:
        """Return the names of all producers of a log, sorted."""
        segments = await znodes.children_of(self._tree, self._paths.producers(log_id))
        return sorted(map(unquote, segments))

    async def write(
        self,
        log_id: str,
        app: str,
        producer: ProducerRecord,
        version: Version | None,
        deregistered: Sequence[int] = (),
        released: Sequence[int] = (),
    ) -> Version:
        """Create or replace a producer record, and end registrations of ledgers.

        If `version` is None, the record is created. Each ledger in `deregistered` gets the mark
        `staged`, unless it has a mark. The ledgers in `released` are listed, so they get no mark.
        If `version` is None and the record exists, or if the record has another version,
        MetadataVersionError is raised and nothing is changed. If the producer is new and its log
        does not exist, LogNotFoundError is raised and nothing is changed.
        """
        path, data = self._paths.producer(log_id, app), encode_producer(producer)
        if version is None:
            assert not (*deregistered, *released), "a new producer has no registrations"
            made = [znodes.CreateNode(path, data), znodes.CreateNode(f"{path}/ledgers")]
            return await self._create(app, made)
        operations: list[znodes.NodeOperation] = [znodes.SetNode(path, data, version)]
        operations += await self._ended(log_id, app, deregistered, released)
        return version_of((await self._nodes.transact(operations))[0])

    async def _create(self, app: str, operations: list[znodes.CreateNode]) -> Version:
        """Create the nodes of a new producer."""
        try:
            return version_of((await self._nodes.transact(operations))[0])
        except MetadataVersionError as error:
            cause = error.__cause__
            is_gone = isinstance(cause, znodes.TransactionFailedError) and isinstance(
                cause.cause, znodes.NodeMissingError
            )
            if not is_gone:
                raise
            # The node above a log's producers is missing. This node is deleted only with the log,
            # or later.
            raise LogNotFoundError(
                f"the log of producer {app!r} was deleted; nothing was changed",
                app=app,
            ) from error

    async def delete(
        self,
        log_id: str,
        app: str,
        version: Version,
        deregistered: Sequence[int] = (),
        released: Sequence[int] = (),
    ) -> None:
        """Delete a producer and end its last registrations. The name must never be used again.

        The ledgers get the same marks as in `write`. If the record has another version, or the
        producer has other registrations, MetadataVersionError is raised and nothing is changed.
        """
        operations = await self._ended(log_id, app, deregistered, released)
        await self._nodes.transact([*operations, *self._deletion(log_id, app, version)])

    def deletions(self, log_id: str, versions: Mapping[str, Version]) -> list[znodes.NodeOperation]:
        """Return the operations that delete these producers of a log.

        The transaction fails if the log has other producers.
        """
        operations: list[znodes.NodeOperation] = []
        for app, version in versions.items():
            operations += self._deletion(log_id, app, version)
        return [*operations, znodes.DeleteNode(self._paths.producers(log_id))]

    def _deletion(self, log_id: str, app: str, version: Version) -> list[znodes.NodeOperation]:
        # The store refuses to delete a node that is not empty.
        path = self._paths.producer(log_id, app)
        return [znodes.DeleteNode(f"{path}/ledgers"), znodes.DeleteNode(path, version)]

    async def _ended(
        self, log_id: str, app: str, deregistered: Sequence[int], released: Sequence[int]
    ) -> list[znodes.NodeOperation]:
        """Return the operations that end registrations.

        The ledgers in `deregistered` get a mark.
        """
        ended = [self._paths.registration(log_id, app, i) for i in (*deregistered, *released)]
        marks = await self.marks(log_id, deregistered, STAGED)
        return [*map(znodes.DeleteNode, ended), *marks]

    async def registered(self, log_id: str, app: str) -> Sequence[int]:
        """Return the ids of the producer's registered ledgers, ascending."""
        return await self._ids_below(self._paths.registration(log_id, app))

    async def registered_before(self, log_id: str, app: str, epoch: int) -> Sequence[int]:
        """Return the ids of the producer's ledgers that earlier epochs than `epoch` registered."""
        ledger_ids = await self.registered(log_id, app)
        paths = [self._paths.registration(log_id, app, each) for each in ledger_ids]
        found = await read_each(partial(znodes.get_or_none, self._tree), paths)
        pairs = zip(ledger_ids, found, strict=True)
        return [i for i, node in pairs if node is not None and int(node.value) < epoch]

    async def staged_ms(self, log_id: str, app: str) -> dict[int, int]:
        """Return when each ledger was registered, in ms of the store's clock, in order of ids."""
        found = await self._ledgers_below(self._paths.registration(log_id, app))
        return {ledger_id: stat.created_ms for ledger_id, stat in found}

    async def register_ledger(
        self,
        log_id: str,
        app: str,
        epoch: int,
        version: Version,
        ledger_id: int,
        metadata: LedgerMetadata,
    ) -> Versioned[LedgerMetadata]:
        """Create a ledger's metadata and its registration in one transaction.

        After a lost reply, the token in `metadata` and the registration show whether the ledger was
        created. The producer's record must have `version`. The registration stores `epoch`.

        Raises:
            MetadataVersionError: The producer record has another version. Nothing was created.
            LedgerExistsError: Another client has used the id.
            MetadataUnknownError: The outcome is unknown, and the id must not be used any more.
        """
        path = self._ledgers.path(ledger_id)
        registration = self._paths.registration(log_id, app, ledger_id)
        operations: list[znodes.NodeOperation] = [
            znodes.CheckNode(self._paths.producer(log_id, app), version),
            znodes.CreateNode(path, encode_ledger_metadata(metadata)),
            znodes.CreateNode(registration, str(epoch).encode()),
        ]
        return await self._create_ledger(operations, registration, ledger_id, metadata)

    async def make_ledger(
        self, log_id: str, ledger_id: int, metadata: LedgerMetadata
    ) -> Versioned[LedgerMetadata]:
        """Create the metadata of a leader's ledger and its mark `made`, in one transaction.

        The transaction that lists the ledger deletes the mark. After a lost reply, the token in
        `metadata` and the mark show whether the ledger was created.

        Raises:
            LogNotFoundError: The log was deleted. Nothing was created.
            LedgerExistsError: Another client has used the id.
            MetadataUnknownError: The outcome is unknown, and the id must not be used any more.
        """
        mark = self._paths.mark(log_id, ledger_id)
        record = znodes.CreateNode(self._ledgers.path(ledger_id), encode_ledger_metadata(metadata))
        operations: list[znodes.NodeOperation] = [znodes.CreateNode(mark, MADE), record]
        return await self._create_ledger(operations, mark, ledger_id, metadata)

    async def claim_made(self, log_id: str, ledger_id: int) -> None:
        """Change the mark of a ledger from `made` to `staged`, so that no leader can list it.

        Do nothing if the ledger does not have the mark `made`.
        """
        path = self._paths.mark(log_id, ledger_id)
        with contextlib.suppress(znodes.NodeMissingError, MetadataVersionError):
            mark = await self._tree.get(path)
            if mark.value == MADE:
                await self._tree.set(path, STAGED, mark.version)

    async def _create_ledger(
        self,
        operations: Sequence[znodes.NodeOperation],
        proof: str,
        ledger_id: int,
        metadata: LedgerMetadata,
    ) -> Versioned[LedgerMetadata]:
        """Run the operations. The second operation creates the metadata of the ledger.

        After a lost reply, the ledger counts as created only if the node `proof` exists.
        """
        path = self._ledgers.path(ledger_id)
        attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    done = await self._tree.transact(operations)
                except znodes.TransactionFailedError as error:
                    if not isinstance(error.cause, znodes.NodeMissingError) or error.index != 1:
                        lost = attempts.lost
                        return await self._settle_creation(error, proof, ledger_id, metadata, lost)
                    await znodes.make_persistent(self._tree, znodes.parent_of(path))
                else:
                    return Versioned(metadata, version_of(done[1]))
        raise attempts.lost or MetadataUnknownError(
            f"it is unknown whether ledger {ledger_id} was created: do not use this ledger",
            ledger_id=ledger_id,
        )

    async def created_ms(self, ledger_ids: Sequence[int]) -> Sequence[int | None]:
        """Return the creation times of ledgers' metadata in ms of the store's clock.

        The time is None if the metadata does not exist.
        """
        stats = await read_each(self._tree.stat, list(map(self._ledgers.path, ledger_ids)))
        return [None if stat is None else stat.created_ms for stat in stats]

    async def marked(self, log_id: str) -> Sequence[MarkedLedger]:
        """Return all ledgers of a log with marks, in ascending order of ids."""
        found = await self._ledgers_below(self._paths.marks(log_id))
        paths = [self._paths.mark(log_id, ledger_id) for ledger_id, _ in found]
        marks = await read_each(partial(znodes.get_or_none, self._tree), paths)
        return [
            MarkedLedger(i, stat.changed_ms, mark.value == STAGED, mark.value == MADE)
            for (i, stat), mark in zip(found, marks, strict=True)
            if mark is not None
        ]

    async def marked_ms(self, log_id: str, ledger_id: int) -> int | None:
        """Return the time when the ledger was marked; None if the ledger has no mark."""
        stat = await self._tree.stat(self._paths.mark(log_id, ledger_id))
        return None if stat is None else stat.changed_ms

    async def forget_mark(self, log_id: str, ledger_id: int) -> None:
        """Delete the mark of a deleted ledger. Do nothing if the ledger has no mark."""
        await self._nodes.delete(self._paths.mark(log_id, ledger_id))

    async def _settle_creation(
        self,
        failed: znodes.TransactionFailedError,
        proof: str,
        ledger_id: int,
        metadata: LedgerMetadata,
        lost: MetadataUnknownError | None,
    ) -> Versioned[LedgerMetadata]:
        """Return the metadata if an earlier attempt created the ledger.

        Otherwise raise an error.
        """
        await self._tree.sync()
        if lost is not None and await self._tree.stat(proof) is not None:
            with contextlib.suppress(LedgerNotFoundError):
                found = await self._ledgers.load(ledger_id)
                if found.value.token == metadata.token:
                    return found
        if isinstance(failed.cause, znodes.NodeExistsError):
            raise LedgerExistsError(
                f"ledger id {ledger_id} is taken: use a new one", ledger_id=ledger_id
            )
        if isinstance(failed.cause, znodes.NodeMissingError):
            raise LogNotFoundError(
                f"the log of ledger {ledger_id} was deleted, so the ledger was not created",
                ledger_id=ledger_id,
            ) from failed
        raise MetadataVersionError(
            f"another process changed the producer of ledger {ledger_id}, so the ledger was not "
            "created",
            ledger_id=ledger_id,
        ) from failed

    async def marks(
        self, log_id: str, ledger_ids: Sequence[int], was: bytes
    ) -> list[znodes.NodeOperation]:
        """Return the operations that give ledgers the mark `was`.

        If a ledger has a mark, `LISTED` replaces the mark and renews its time, and any other `was`
        leaves the mark. If another process creates or deletes a mark at the same time, the
        transaction with these operations fails.
        """
        operations: list[znodes.NodeOperation] = []
        paths = [self._paths.mark(log_id, ledger_id) for ledger_id in ledger_ids]
        for path, stat in zip(paths, await read_each(self._tree.stat, paths), strict=True):
            if stat is None:
                operations.append(znodes.CreateNode(path, was))
            elif was == LISTED:
                operations.append(znodes.SetNode(path, was, None))
        return operations

    async def listings(
        self, log_id: str, ledger_ids: Sequence[int], head_version: Version
    ) -> list[znodes.NodeOperation]:
        """Return the operations that delete the marks of newly listed ledgers.

        Raises the errors of `write_head`.
        """
        return [await self._listing(log_id, each, head_version) for each in ledger_ids]

    async def _listing(
        self, log_id: str, ledger_id: int, head_version: Version
    ) -> znodes.NodeOperation:
        path = self._paths.mark(log_id, ledger_id)
        for is_synced in (False, True):
            if is_synced:
                await self._tree.sync()
            mark = await znodes.get_or_none(self._tree, path)
            if mark is not None and mark.value == MADE:
                return znodes.DeleteNode(path, mark.version)
        # A ledger loses the mark `made` only if a change of the head lists the ledger, or if the
        # sweeper claims the mark. Therefore, if the head has the same version, the ledger was not
        # listed, and no change can list it later.
        head = await self._tree.stat(self._paths.head(log_id))
        if head is None or head.version != head_version:
            raise MetadataVersionError(
                f"ledger {ledger_id} may be listed already: the head has changed", path=path
            )
        raise LedgerNotFoundError(
            f"ledger {ledger_id} was deleted before it was listed, or is being deleted, because "
            "it was created more than stagingTtlMs ago: open the log again",
            ledger_id=ledger_id,
        )

    async def _ids_below(self, path: str) -> list[int]:
        return sorted(map(int, await znodes.children_of(self._tree, path)))

    async def _ledgers_below(self, path: str) -> list[tuple[int, znodes.NodeStat]]:
        """Return the ids of ledgers with a node below `path`, ascending, each with its stat."""
        ledger_ids = await self._ids_below(path)
        stats = await read_each(self._tree.stat, [f"{path}/{each}" for each in ledger_ids])
        return [(i, stat) for i, stat in zip(ledger_ids, stats, strict=True) if stat is not None]
