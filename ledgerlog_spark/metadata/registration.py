"""The bookies of a cluster. The nodes are `available`, `cookies`, `INSTANCEID` and `LAYOUT`.

A bookie announces itself with an ephemeral node. If this node is deleted, the bookie creates a new
node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence

from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LedgerLogError,
    LocalProtocolError,
    MetadataError,
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.ids import require_cluster
from ledgerlog_spark.metadata.ledgers.layout import read_layout
from ledgerlog_spark.model import BookieInfo, Version, Versioned
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.registration import decode_service_info, encode_service_info
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout

KEEP_DELAY_SECONDS = 1.0
COOKIE_ATTEMPTS_MAX = 4

_logger = logging.getLogger(__name__)


class Announcement:
    """The node that announces a bookie, at `available/<id>` or `available/readonly/<id>`."""

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
        """Wait until no other session has a node of the bookie, and create this session's node.

        If the process of an older session has died, the node of this older session is deleted
        within the session's time-out. LocalProtocolError is raised if a node of another session is
        not deleted in time.
        """
        places = (self._place, self._other_place)
        await _until_alone(self._tree, self._bookie_id, places, self._try)

    async def withdraw(self) -> None:
        """Delete the nodes of this bookie that belong to this session."""
        for path in (self._place, self._other_place):
            stat = await znodes.synced_stat(self._tree, path)
            if stat is not None and stat.owner == self._tree.session_id:
                with contextlib.suppress(znodes.NodeMissingError):
                    await self._tree.delete(path, stat.version)

    def keep(self) -> None:
        """Announce the bookie again whenever the session is replaced or the node is deleted."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop_keeping(self) -> None:
        """Stop the work of `keep`, and wait until its task has ended."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self) -> None:
        changed = asyncio.Event()
        cancel = self._tree.watch(self._place, changed.set)
        # Check once at the start, because the node may have been deleted before the watch was set.
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
        """Try to announce the bookie. Return None after success.

        If another session announces the bookie, return the id of that other session.
        """
        while True:
            here = await znodes.synced_stat(self._tree, self._place)
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
                continue  # the next read shows whether it happened
            else:
                return None

    async def _operations(
        self, here: znodes.NodeStat | None, there: znodes.NodeStat | None
    ) -> list[znodes.NodeOperation]:
        """Return the operations that announce the bookie.

        `here` is the node at the wanted path, and `there` is the node at the other path. Each is
        None if the node does not exist. Both nodes belong to this session.
        """
        operations: list[znodes.NodeOperation] = []
        if there is not None:
            operations.append(znodes.DeleteNode(self._other_place, there.version))
        if here is None:
            operations.append(znodes.CreateNode(self._place, self._data, znodes.NodeKind.EPHEMERAL))
        elif (await self._tree.get(self._place)).value != self._data:
            operations.append(znodes.SetNode(self._place, self._data, here.version))
        return operations


async def _until_alone(
    tree: znodes.ZnodeTree,
    bookie_id: str,
    places: Sequence[str],
    attempt: Callable[[], Awaitable[int | None]],
) -> None:
    """Call `attempt` until it finds no node of another session at `places`.

    `attempt` returns the id of the other session; None if there is no such session. It is called
    again after each change of a node.

    Raises:
        LocalProtocolError: The other session did not end within 1.5 session timeouts.
    """
    patience_seconds = tree.session_timeout_ms * 1.5 / 1000 + 0.5
    deadline = asyncio.get_running_loop().time() + patience_seconds
    changed = asyncio.Event()
    cancels = [tree.watch(place, changed.set) for place in places]
    try:
        while True:
            changed.clear()
            foreign = await attempt()
            if foreign is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
                    continue
            raise LocalProtocolError(
                f"bookie {bookie_id} is registered by another session ({foreign:#x}), "
                f"which did not end within {patience_seconds:g} s: stop the other bookie, or "
                "give this bookie another id",
                bookie_id=bookie_id,
            )
    finally:
        for cancel in cancels:
            cancel()


READ_ONLY = "readonly"
DELETING = "deleting "
"""The beginning of the data of INSTANCEID while the cluster is being deleted."""

_BOOKIE_ID = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


class Registration:
    """The store of the registrations and cookies of the bookies, for the cluster at one root."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._root = root
        self._available = f"{root}/available"
        self._read_only = f"{root}/available/{READ_ONLY}"
        self._cookies = f"{root}/cookies"
        self._announcements: dict[str, Announcement] = {}

    async def register(self, info: BookieInfo, *, read_only: bool = False) -> None:
        """Announce a bookie, and keep it announced until `unregister` or `close`.

        If the session is lost or the node is deleted, a new node is created. A second call replaces
        the data of the announcement.

        The call waits until a node of an older session of the same bookie is deleted.
        """
        name = checked_bookie_id(info.bookie_id)
        before = self._announcements.pop(name, None)
        if before is not None:
            await before.stop_keeping()
        places = [f"{self._available}/{name}", f"{self._read_only}/{name}"]
        if read_only:
            places.reverse()
        announcement = Announcement(self._tree, info, place=places[0], other_place=places[1])
        await announcement.announce()
        self._announcements[name] = announcement
        announcement.keep()

    async def wait_until_alone(self, bookie_id: str) -> None:
        """Wait until no other session announces the bookie. The call changes nothing.

        Raises:
            LocalProtocolError: The other session did not end within 1.5 session timeouts.
        """
        name = checked_bookie_id(bookie_id)
        places = (f"{self._available}/{name}", f"{self._read_only}/{name}")

        async def foreign() -> int | None:
            for place in places:
                stat = await znodes.synced_stat(self._tree, place)
                if stat is not None and stat.owner != self._tree.session_id:
                    return stat.owner
            return None

        await _until_alone(self._tree, name, places, foreign)

    async def unregister(self, bookie_id: str) -> None:
        """Delete the announcement of a bookie.

        Do nothing if this object does not announce the bookie.
        """
        announcement = self._announcements.pop(checked_bookie_id(bookie_id), None)
        if announcement is not None:
            await announcement.stop_keeping()
            await announcement.withdraw()

    async def writable(self) -> Sequence[str]:
        """Return the ids of the bookies that accept new ledgers, sorted."""
        return [name for name in await self._names(self._available) if name != READ_ONLY]

    async def read_only(self) -> Sequence[str]:
        """Return the ids of the bookies that serve only reads and recovery, sorted."""
        return await self._names(self._read_only)

    async def known(self) -> Sequence[str]:
        """Return the ids of all bookies that have a cookie, sorted."""
        return await self._names(self._cookies)

    async def info(self, bookie_id: str) -> BookieInfo:
        """Return the registration of a bookie, which contains its addresses."""
        name = checked_bookie_id(bookie_id)
        for directory in (self._available, self._read_only, self._available):
            # The third read finds a bookie that became writable between the first two reads.
            record = await znodes.get_or_none(self._tree, f"{directory}/{name}")
            if record is not None:
                return decode_service_info(bookie_id, record.value)
        raise BookieUnavailableError(
            f"bookie {bookie_id} is not registered at {self._root}: it is down, or it cannot reach "
            "ZooKeeper",
            bookie_id=bookie_id,
        )

    async def sight(self, bookie_id: str) -> tuple[bool, int] | None:
        """Return how a bookie is registered, read after a sync.

        Returns:
            Two values: whether the bookie is read-only, and the id of the transaction that created
            its node. This id is different for each registration. The result is None if the bookie
            is not registered.
        """
        name = checked_bookie_id(bookie_id)
        for path in (f"{self._available}/{name}", f"{self._read_only}/{name}"):
            stat = await znodes.synced_stat(self._tree, path)
            if stat is not None:
                return path.startswith(self._read_only), stat.version.incarnation
        return None

    def watch_writable(self, on_change: znodes.OnChange) -> znodes.CancelWatch:
        """Watch the result of `writable`. `on_change` is called after a change or a new session."""
        return self._tree.watch_children(self._available, on_change)

    def watch_read_only(self, on_change: znodes.OnChange) -> znodes.CancelWatch:
        """Watch the result of `read_only`.

        `on_change` is called after a change or a new session.
        """
        return self._tree.watch_children(self._read_only, on_change)

    async def read_cookie(self, bookie_id: str) -> Versioned[bytes] | None:
        """Return the stored bytes of a bookie's cookie; None if the bookie has no cookie."""
        return await znodes.get_or_none(self._tree, self._cookie_path(bookie_id))

    async def write_cookie(self, bookie_id: str, cookie: bytes, version: Version | None) -> None:
        """Create or replace the cookie of a bookie. If `version` is None, the cookie is created.

        If the answer to a creation is lost and the store has the same cookie, the cookie counts as
        created. The bookie would also accept this cookie at its next start, because the cookie
        names the bookie and its directories.
        """
        path = self._cookie_path(bookie_id)
        try:
            if version is None:
                await self._create_cookie(path, cookie)
            else:
                await self._tree.set(path, cookie, version)
        except znodes.NodeExistsError:
            raise MetadataVersionError(
                f"bookie {bookie_id} has a cookie already", bookie_id=bookie_id
            ) from None
        except znodes.NodeMissingError:
            await require_cluster(self._tree, self._root)
            raise MetadataVersionError(
                f"the cookie of bookie {bookie_id}, or the node {self._cookies}, does not exist",
                bookie_id=bookie_id,
            ) from None

    async def _create_cookie(self, path: str, cookie: bytes) -> None:
        attempts = znodes.WriteAttempts(COOKIE_ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    await self._tree.create(path, cookie)
                except znodes.NodeExistsError:
                    found = await znodes.get_or_none(self._tree, path)
                    if attempts.lost is None or found is None or found.value != cookie:
                        raise
                return
        raise attempts.error()

    async def instance_id(self) -> str:
        """Return the UUID of the cluster, which each cookie contains."""
        path = f"{self._root}/INSTANCEID"
        record = await znodes.get_or_none(self._tree, path)
        if record is None:
            await require_cluster(self._tree, self._root)
            raise MetadataError(
                f"the cluster at {self._root} has no INSTANCEID: start a bookie, which creates it",
                root=self._root,
            )
        try:
            found = record.value.decode("ascii").strip()
        except UnicodeDecodeError as error:
            raise MetadataFormatError(f"the data of {path} is not ASCII text", path=path) from error
        if found.startswith(DELETING):
            raise MetadataError(
                f"the cluster at {self._root} is being deleted: `ledgerlog cluster nuke "
                f"--instance-id {found.removeprefix(DELETING)} --delete` ends the deletion",
                root=self._root,
            )
        return found

    async def has_cluster(self) -> bool:
        """Return whether a bookie or `ledgerlog cluster init` has created the cluster."""
        path = f"{self._root}/INSTANCEID"
        await self._tree.sync(self._root)
        return await znodes.get_or_none(self._tree, path) is not None

    async def initialize(self, layout: Layout = HIERARCHICAL) -> None:
        """Create the missing nodes of the cluster (LAYOUT, INSTANCEID, available, cookies)."""
        await znodes.make_persistent(self._tree, self._root)
        await znodes.make_node(self._tree, f"{self._root}/LAYOUT", layout.encode())
        await read_layout(self._tree, self._root)
        instance_id = str(uuid.uuid4()).encode()
        await znodes.make_node(self._tree, f"{self._root}/INSTANCEID", instance_id)
        await znodes.make_persistent(self._tree, self._read_only)
        await znodes.make_persistent(self._tree, self._cookies)

    async def sync(self) -> None:
        """Sync with the store, so that later reads return the present state or a newer state."""
        await self._tree.sync(self._root)

    async def close(self) -> None:
        """Stop keeping the bookies announced. This call does not end the session.

        The nodes of the bookies stay until the session ends.
        """
        announcements, self._announcements = self._announcements, {}
        for announcement in announcements.values():
            await announcement.stop_keeping()

    async def _names(self, directory: str) -> list[str]:
        try:
            return await self._tree.children(directory)
        except znodes.NodeMissingError:
            await require_cluster(self._tree, self._root)
            return []

    def _cookie_path(self, bookie_id: str) -> str:
        return f"{self._cookies}/{checked_bookie_id(bookie_id)}"


def checked_bookie_id(bookie_id: object) -> str:
    """Return the id, or raise ConfigurationError if no bookie can have it."""
    if (
        not isinstance(bookie_id, str)
        or not _BOOKIE_ID.fullmatch(bookie_id)
        or bookie_id in (".", "..", READ_ONLY)
    ):
        raise ConfigurationError(
            f"{bookie_id!r} cannot be a bookie id: use letters, digits, dots, dashes, underscores "
            f"and colons, but not {READ_ONLY!r}",
            bookie_id=bookie_id,
        )
    return bookie_id
