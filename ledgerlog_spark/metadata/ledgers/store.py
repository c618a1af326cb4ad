"""Ledger metadata on a tree of nodes, in Apache BookKeeper's paths and formats.

Ledger ids are unique, so the path of a ledger is never created twice. Therefore it is enough that
the store compares the number of a version in each write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerLogError,
    LedgerNotFoundError,
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.ids import LedgerIds, require_cluster
from ledgerlog_spark.metadata.ledgers.layout import style_of
from ledgerlog_spark.metadata.ledgers.listing import LedgerIdListing
from ledgerlog_spark.metadata.ledgers.walk import WALK_DEPTH, WalkedLedger, walked
from ledgerlog_spark.metadata.replication.identities import NodeIdentities
from ledgerlog_spark.metadata.replication.ports import BookieIdentity
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.wire.ledger_metadata.record import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX, Layout, ledger_path

CREATE_ATTEMPTS_MAX = 4
REPLACE_ATTEMPTS_MAX = 8


class LedgerStore:
    """The metadata of the ledgers below one root. The layout determines the paths."""

    def __init__(self, tree: znodes.ZnodeTree, root: str, layout: Layout) -> None:
        self._tree = tree
        self._root = root
        self._style = style_of(layout)
        self._ids = LedgerIds(tree, root, self._style)
        self._listing = LedgerIdListing(tree, root, self._style)
        self._identities = NodeIdentities(tree, root)

    def path(self, ledger_id: int) -> str:
        """Return the path of a ledger's metadata, for transactions that also change other nodes."""
        return self._root + ledger_path(ledger_id, self._style)

    async def new_ids(self, count: int = 1) -> Sequence[int]:
        """Return `count` (1 to 64) new ledger ids. An id that the caller does not use is lost."""
        return await self._ids.take(count)

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Create the metadata of a ledger.

        If the metadata has a token, the call is retried after a lost reply. If the retry finds
        metadata, the token shows whether this client created it.
        """
        path, data = self.path(ledger_id), encode_ledger_metadata(metadata)
        attempts = znodes.WriteAttempts(CREATE_ATTEMPTS_MAX, settles=metadata.token is not None)
        for attempt in attempts:
            with attempt:
                try:
                    created = await self._tree.create(path, data)
                except znodes.NodeMissingError:
                    await require_cluster(self._tree, self._root)
                    await znodes.make_persistent(self._tree, znodes.parent_of(path))
                except znodes.NodeExistsError:
                    return await self._settle(ledger_id, metadata, attempts.lost)
                else:
                    return Versioned(metadata, created.version)
        raise attempts.lost or MetadataUnavailableError(
            f"the directory of {path} was deleted after every attempt to create it", path=path
        )

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """Return the metadata of a ledger. The read may be stale.

        Raises LedgerNotFoundError, or MetadataFormatError if the metadata cannot be decoded.
        """
        record = await znodes.get_or_none(self._tree, self.path(ledger_id))
        if record is None:
            raise _not_found(ledger_id)
        try:
            return Versioned(decode_ledger_metadata(record.value), record.version)
        except MetadataFormatError as error:
            raise MetadataFormatError(
                f"the metadata of ledger {ledger_id} cannot be read, and was not changed: {error}",
                ledger_id=ledger_id,
            ) from error

    async def write(
        self, ledger_id: int, metadata: LedgerMetadata, version: Version
    ) -> Versioned[LedgerMetadata]:
        """Replace the metadata of a ledger if it still has `version`."""
        data = encode_ledger_metadata(metadata)
        try:
            written = await self._tree.set(self.path(ledger_id), data, version)
        except znodes.NodeMissingError:
            raise _not_found(ledger_id) from None
        return Versioned(metadata, written)

    async def replace(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: Version,
        identities: Sequence[BookieIdentity],
    ) -> Versioned[LedgerMetadata]:
        """Replace the metadata of a ledger if it still has `version` and no identity has changed.

        A bookie that stores data writes its record often. Therefore each attempt reads the records
        again, and compares them with `identities`. If an answer is lost and the store has the same
        metadata with the next version, the metadata counts as written.

        Raises:
            MetadataVersionError: The metadata (field `ledger_id`) or an identity (field
                `bookie_id`) has changed. Nothing was changed.
            LedgerNotFoundError: The ledger was deleted.
            MetadataUnknownError: An answer was lost, and no later attempt showed the outcome.
        """
        lost: MetadataUnknownError | None = None
        for _ in range(REPLACE_ATTEMPTS_MAX):
            try:
                return await self._replace_once(
                    ledger_id, metadata, version, identities, is_repeat=lost is not None
                )
            except znodes.TransactionFailedError as failure:
                if not isinstance(failure.cause, znodes.NodeMissingError | MetadataVersionError):
                    raise failure.cause from failure
                # the reads of the next attempt show the change
            except MetadataUnknownError as error:
                lost = error
            except LedgerLogError as error:
                if lost is None or "ledger_id" in error.fields:
                    raise
                raise lost from error
        raise lost or MetadataVersionError(
            f"the bookies {', '.join(each.bookie_id for each in identities)} wrote their records "
            f"during each of {REPLACE_ATTEMPTS_MAX} attempts to replace the metadata of ledger "
            f"{ledger_id}; nothing was changed, so try again",
            ledger_id=ledger_id,
        )

    def unchanged(self, ledger_id: int, version: Version) -> znodes.NodeOperation:
        """Return an operation that makes a transaction fail if the metadata has another version."""
        return znodes.CheckNode(self.path(ledger_id), version)

    async def _replace_once(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: Version,
        identities: Sequence[BookieIdentity],
        *,
        is_repeat: bool,
    ) -> Versioned[LedgerMetadata]:
        path, data = self.path(ledger_id), encode_ledger_metadata(metadata)
        await self.sync()
        found = await znodes.get_or_none(self._tree, path)
        if found is None:
            raise _not_found(ledger_id)
        if found.version != version:
            is_next = found.version == Version(version.incarnation, version.number + 1)
            if is_repeat and is_next and found.value == data:
                return Versioned(metadata, found.version)
            raise _changed(ledger_id)
        operations: list[znodes.NodeOperation] = [znodes.SetNode(path, data, version)]
        for identity in identities:
            operations.extend(await self._identities.checks(identity))
        written = (await self._tree.transact(operations))[0]
        assert isinstance(written, Version)
        return Versioned(metadata, written)

    async def touch(self, ledger_id: int, version: Version) -> Version:
        """Write the same bytes again if the metadata still has `version`. Return the new version.

        After that, a write of a client that read the earlier version fails.
        """
        path = self.path(ledger_id)
        try:
            unchanged = await self._tree.get(path)
            return await self._tree.set(path, unchanged.value, version)
        except znodes.NodeMissingError:
            raise _not_found(ledger_id) from None

    async def delete(self, ledger_id: int, version: Version | None = None) -> None:
        """Delete the metadata of a ledger. If `version` is None, missing metadata is no error."""
        try:
            await self._tree.delete(self.path(ledger_id), version)
        except znodes.NodeMissingError:
            if version is not None:
                raise _not_found(ledger_id) from None

    def ids(self, after: int = -1, last: int = LEDGER_ID_MAX) -> AsyncIterator[int]:
        """Yield the ids of ledgers above `after`, up to and including `last`, ascending.

        The ids come from several reads, so the result is not a snapshot. To continue an earlier
        iteration, the caller passes the last id of that iteration as `after`. An error ends the
        iteration.
        """
        return self._listing.ids(after, last)

    async def page(self, after: int, count: int) -> Sequence[int]:
        """Return the first `count` (at least 1) ids above `after`, ascending; fewer at the end."""
        found: list[int] = []
        ids = self._listing.ids(after, LEDGER_ID_MAX)
        async with aclosing(ids):
            async for ledger_id in ids:
                found.append(ledger_id)
                if len(found) >= count:
                    break
        return found

    def walk(
        self, after: int = -1, last: int = LEDGER_ID_MAX, depth: int = WALK_DEPTH
    ) -> AsyncIterator[WalkedLedger]:
        """Yield the ledgers above `after`, up to `last`, with their metadata, ascending.

        At most `depth` records are read at the same time. The reads may be stale until `sync`.
        Ledgers that are deleted during the iteration are omitted. A record that cannot be decoded
        does not end the iteration. To continue an earlier iteration, the caller passes its last id
        as `after`.
        """
        return walked(self._listing.ids(after, last), self.load, depth)

    def watch(self, ledger_id: int, on_change: OnChange) -> CancelWatch:
        """Watch the metadata of a ledger. `on_change` is called after a change or a new session."""
        return self._tree.watch(self.path(ledger_id), on_change)

    async def sync(self) -> None:
        """Sync with the store, so that later reads return the present state or a newer state."""
        await self._tree.sync(self._root)

    async def close(self) -> None:
        """Wait until requests in the background have ended. The tree stays open."""
        await self._ids.close()

    async def _settle(
        self, ledger_id: int, metadata: LedgerMetadata, lost: MetadataUnknownError | None
    ) -> Versioned[LedgerMetadata]:
        """Return the ledger's metadata if this client created it. Otherwise raise an error."""
        try:
            await self.sync()
            found = await self.load(ledger_id)
        except MetadataFormatError:
            raise _exists(ledger_id) from None
        except LedgerNotFoundError:
            raise lost or _exists(ledger_id) from None
        if metadata.token is not None and found.value.token == metadata.token:
            return found
        raise _exists(ledger_id)


def _not_found(ledger_id: int) -> LedgerNotFoundError:
    return LedgerNotFoundError(
        f"ledger {ledger_id} does not exist: `ledgerlog ledgers list` lists the ledgers",
        ledger_id=ledger_id,
    )


def _changed(ledger_id: int) -> MetadataVersionError:
    return MetadataVersionError(
        f"another process changed the metadata of ledger {ledger_id}; nothing was changed, so load "
        "it and decide again",
        ledger_id=ledger_id,
    )


def _exists(ledger_id: int) -> LedgerExistsError:
    return LedgerExistsError(f"the ledger id {ledger_id} is taken", ledger_id=ledger_id)
