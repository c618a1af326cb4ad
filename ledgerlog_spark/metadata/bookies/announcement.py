"""Creates one bookie's ephemeral node, and replaces the node when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    LedgerLogError,
    LocalProtocolError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.registration import encode_service_info

if TYPE_CHECKING:
    from ledgerlog_spark.model import BookieInfo

KEEP_DELAY_SECONDS = 1.0

_logger = logging.getLogger(__name__)


class Announcement:
    """A bookie's node at one of its two places: `available/<id>` or `available/readonly/<id>`."""

    def __init__(
        self, tree: znodes.ZnodeTree, info: BookieInfo, *, place: str, other_place: str
    ) -> None:
        self._tree = tree
        self._bookie_id = info.bookie_id
        self._data = encode_service_info(info)
        self._place = place
        self._other_place = other_place
        self._keeper: asyncio.Task[None] | None = None

    async def announce(self) -> None:
        """Create our node, and wait until no other node of this bookie exists.

        The node of an older session of the bookie is deleted within the timeout of that session,
        unless the session is alive.
        """
        loop = asyncio.get_running_loop()
        patience_seconds = self._tree.session_timeout_ms * 1.5 / 1000 + 0.5
        deadline = loop.time() + patience_seconds
        changed = asyncio.Event()
        cancels = [self._tree.watch(p, changed.set) for p in (self._place, self._other_place)]
        try:
            while True:
                changed.clear()
                foreign = await self._try()
                if foreign is None:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                        continue
                raise LocalProtocolError(
                    f"another live session ({foreign:#x}) has registered bookie "
                    f"{self._bookie_id} and kept it for {patience_seconds:g} s: stop that bookie, "
                    "or give this one an id of its own",
                    bookie_id=self._bookie_id,
                )
        finally:
            for cancel in cancels:
                cancel()

    async def withdraw(self) -> None:
        """Delete our nodes of this bookie."""
        for path in (self._place, self._other_place):
            stat = await self._synced_stat(path)
            if stat is not None and stat.owner == self._tree.session_id:
                with contextlib.suppress(znodes.NodeMissingError):
                    await self._tree.delete(path, stat.version)

    def keep(self) -> None:
        """From now on, announce again after the session is replaced or the node is deleted."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop_keeping(self) -> None:
        """Stop the work of `keep`, and wait until nothing runs in the background."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self) -> None:
        changed = asyncio.Event()
        cancel = self._tree.watch(self._place, changed.set)
        # Checks once at the start: the node may have been deleted before the watch was set.
        changed.set()
        try:
            while True:
                await forever(changed.wait(), "a bookie is announced until it stops")
                changed.clear()
                try:
                    await self.announce()
                except LedgerLogError as error:
                    _logger.warning("bookie %s is not announced: %s", self._bookie_id, error)
                    changed.set()
                    await asyncio.sleep(KEEP_DELAY_SECONDS)
        finally:
            cancel()

    async def _try(self) -> int | None:
        """Try to announce. Returns None if it succeeded, or the other session of the bookie."""
        while True:
            here = await self._synced_stat(self._place)
            there = await self._tree.stat(self._other_place)
            own = self._tree.session_id
            for stat in (here, there):
                if stat is not None and stat.owner != own:
                    return stat.owner
            operations = await self._operations(here, there)
            if not operations:
                return None
            try:
                await self._tree.transact(operations)
            except znodes.TransactionFailedError as failure:
                if isinstance(failure.cause, znodes.NodeMissingError):
                    await znodes.make_persistent(self._tree, znodes.parent_of(self._place))
                elif not isinstance(failure.cause, znodes.NodeExistsError | MetadataVersionError):
                    raise failure.cause from failure
            except MetadataUnknownError:
                continue  # the next read shows the outcome
            else:
                return None

    async def _operations(
        self, here: znodes.NodeStat | None, there: znodes.NodeStat | None
    ) -> list[znodes.NodeOperation]:
        """The operations that are needed to announce. All existing nodes are ours."""
        operations: list[znodes.NodeOperation] = []
        if there is not None:
            operations.append(znodes.DeleteNode(self._other_place, there.version))
        if here is None:
            operations.append(znodes.CreateNode(self._place, self._data, znodes.NodeKind.EPHEMERAL))
        elif (await self._tree.get(self._place)).value != self._data:
            operations.append(znodes.SetNode(self._place, self._data, here.version))
        return operations

    async def _synced_stat(self, path: str) -> znodes.NodeStat | None:
        await self._tree.sync(path)
        return await self._tree.stat(path)
