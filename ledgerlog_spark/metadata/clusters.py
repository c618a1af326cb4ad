"""Creates a cluster, and deletes all nodes of a cluster.

A cluster consists of the nodes below its root, and of the nodes below the roots of ledgerlog's own
trees (`OWN_TREES`). The path of such a root is the path of the cluster's root followed by a suffix.

One transaction creates a cluster. Therefore two programs cannot create the same cluster, and a
cluster never exists in part. A deletion takes many requests. Its first transaction succeeds only if
no bookie is registered. This transaction writes into INSTANCEID that the cluster is being deleted.
After this transaction no bookie starts, and only a deletion with the same instance id can continue.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ledgerlog_spark.errors import (
    BookieError,
    ConfigurationError,
    MetadataError,
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.ids import require_cluster
from ledgerlog_spark.metadata.registration import DELETING, READ_ONLY
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.wire.znodes import Layout

OWN_TREES = ("-bookies", "-leases", "-logs", "-losses", "-repair")
"""The suffixes of the roots of ledgerlog's own trees."""

NAMES_BELOW_ROOT = re.compile(
    "available|cookies|idgen|idgen-long|underreplication|INSTANCEID|LAYOUT"
    "|[0-9]{2,3}|L[0-9]{10}|ID-[0-9]{10}"
)
"""The names of nodes below the root that ledgerlog and Apache BookKeeper use, in all layouts."""

DELETIONS_AT_ONCE = 100
NAMED_MAX = 5
"""Maximum number of names in a message."""

OnDeleted = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster that may be deleted.

    Attributes:
        instance: The data of INSTANCEID. It begins with `DELETING` if an earlier deletion has begun
            and did not end.
        logs: Names of the logs, sorted.
        bookies: Ids of the bookies with a cookie, sorted.
    """

    instance: Versioned[str]
    logs: Sequence[str]
    bookies: Sequence[str]

    @property
    def is_being_deleted(self) -> bool:
        """Whether an earlier deletion of this cluster has begun and did not end."""
        return self.instance.value.startswith(DELETING)


class Clusters:
    """The nodes of the cluster at one root. The cluster may not exist."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._root = root
        self._instance = f"{root}/INSTANCEID"
        self._available = f"{root}/available"

    async def create(self, layout: Layout) -> str:
        """Create a cluster, and return its new instance id.

        Raises:
            MetadataError: A cluster, or a part of a cluster, already exists at the root. Nothing
                was changed.
            MetadataUnknownError: It is unknown whether the cluster was created.
        """
        await self._require_nothing()
        parent = znodes.parent_of(self._root)
        if parent != "/":
            await znodes.make_persistent(self._tree, parent)
        instance_id = str(uuid.uuid4())
        operations = [
            znodes.CreateNode(f"{self._root}/LAYOUT", layout.encode()),
            znodes.CreateNode(self._instance, instance_id.encode()),
            znodes.CreateNode(self._available),
            znodes.CreateNode(f"{self._available}/{READ_ONLY}"),
            znodes.CreateNode(f"{self._root}/cookies"),
        ]
        if await self._tree.stat(self._root) is None:
            operations.insert(0, znodes.CreateNode(self._root))
        try:
            await self._tree.transact(operations)
        except znodes.TransactionFailedError as failure:
            raise _exists(self._root, "another program has just created it") from failure
        except MetadataUnknownError:
            await self._tree.sync(self._root)
            found = await znodes.get_or_none(self._tree, self._instance)
            if found is None or found.value != instance_id.encode():
                raise
        return instance_id

    async def delete(self, instance_id: str, on_deleted: OnDeleted) -> int:
        """Delete all nodes of the cluster, and return their number.

        If a call was interrupted, another call with the same id continues the deletion.

        Args:
            instance_id: The id of the cluster, so that no other cluster is deleted by mistake.
            on_deleted: A function that is called with the number of nodes that have been deleted so
                far.

        Raises:
            ConfigurationError: The cluster has another instance id. Nothing was changed.
            BookieError: A bookie is registered. Nothing was changed.
            MetadataError: The cluster does not exist, or has unknown nodes.
        """
        found = await self.check(instance_id)
        if not found.is_being_deleted:
            await self._mark(found.instance)
        count = 0
        roots = [self._root + suffix for suffix in OWN_TREES]
        kept = {"INSTANCEID", "LAYOUT"}
        names = await znodes.children_of(self._tree, self._root)
        below = [f"{self._root}/{name}" for name in names if name not in kept]
        for top in (*roots, *below):
            async for some in _batches(self._leaves_first(top)):
                count += await self._delete_all(some)
                on_deleted(count)
        count += await self._end()
        on_deleted(count)
        return count

    async def check(self, instance_id: str) -> FoundCluster:
        """Return the cluster, or raise the error of `delete` if the cluster must not be deleted.

        The call changes nothing.
        """
        await self._tree.sync(self._root)
        await require_cluster(self._tree, self._root)
        instance = await self._read_instance()
        if instance is None:
            raise MetadataError(
                f"the cluster at {self._root} has no INSTANCEID, so it may be another program's; "
                "nothing was deleted. The start of a bookie creates the INSTANCEID",
                root=self._root,
            )
        found = _original(instance.value)
        if found != instance_id:
            raise ConfigurationError(
                f"the cluster at {self._root} has the instance id {found}, not {instance_id}; "
                "nothing was deleted. `ledgerlog cluster info` shows the id of a cluster",
                instance_id=instance_id,
                found=found,
            )
        names = await znodes.children_of(self._tree, self._root)
        strange = [name for name in names if not NAMES_BELOW_ROOT.fullmatch(name)]
        if strange:
            raise MetadataError(
                f"the nodes {_named(strange)} below {self._root} belong to neither ledgerlog nor "
                "BookKeeper; nothing was deleted. Delete these nodes first, or use another path "
                "for them",
                root=self._root,
                names=strange,
            )
        leases = await znodes.children_of(self._tree, f"{self._root}-leases")
        if leases:
            raise MetadataError(
                f"a process holds the lease {_named(leases)} of the cluster; nothing was deleted. "
                "Stop `ledgerlog upkeep run` and `ledgerlog autorecovery run` first, on all "
                "machines",
                root=self._root,
                names=leases,
                retriable=True,
            )
        await self._require_no_bookie()
        return FoundCluster(
            instance=instance,
            logs=await znodes.children_of(self._tree, f"{self._root}-logs/names"),
            bookies=await znodes.children_of(self._tree, f"{self._root}/cookies"),
        )

    async def _mark(self, instance: Versioned[str]) -> None:
        mark = f"{DELETING}{instance.value}".encode()
        paths = (f"{self._available}/{READ_ONLY}", self._available)
        # A deletion of these nodes fails if a bookie is registered, because the bookie's node is a
        # child of one of these nodes.
        empty = [znodes.DeleteNode(each) for each in paths if await self._tree.stat(each)]
        try:
            await self._tree.transact(
                [znodes.SetNode(self._instance, mark, instance.version), *empty]
            )
        except znodes.TransactionFailedError as failure:
            await self._require_no_bookie()
            raise MetadataVersionError(
                f"another program has just changed the cluster at {self._root}; nothing was "
                "deleted, so run the command again",
                root=self._root,
            ) from failure

    async def _end(self) -> int:
        """Delete the last nodes in one transaction. An interrupted deletion can thus continue."""
        paths = [f"{self._root}/LAYOUT", self._instance, self._root]
        there = [path for path in paths if await self._tree.stat(path)]
        try:
            await self._tree.transact([znodes.DeleteNode(path) for path in there])
        except znodes.TransactionFailedError as failure:
            raise _in_part(self._root) from failure
        except MetadataUnknownError:
            if await znodes.synced_stat(self._tree, self._root) is not None:
                raise
        return len(there)

    async def _require_no_bookie(self) -> None:
        registered = await self._registered()
        if registered:
            raise BookieError(
                f"{_named(registered)} of the cluster at {self._root} are registered, so they run; "
                "nothing was deleted. Stop all bookies first: `ledgerlog bookies list` shows them",
                bookie_id=registered[0],
                registered=registered,
                retriable=True,
            )

    async def _require_nothing(self) -> None:
        """Raise MetadataError if the cluster exists, or an own tree of an earlier cluster."""
        await self._tree.sync(self._root)
        names = await znodes.children_of(self._tree, self._root)
        if "INSTANCEID" in names:
            instance = await self._read_instance()
            found = "unknown" if instance is None else _original(instance.value)
            raise _exists(self._root, f"its instance id is {found}")
        if names:
            raise _exists(self._root, f"it has no INSTANCEID, but the nodes {_named(names)}")
        for suffix in OWN_TREES:
            if await znodes.children_of(self._tree, self._root + suffix):
                raise MetadataError(
                    f"the node {self._root}{suffix} of an earlier cluster exists; nothing was "
                    "changed. A new cluster would use the same ledger ids again. Choose another "
                    "path in the metadata service URI, or delete the trees of the earlier cluster",
                    path=self._root + suffix,
                )

    async def _read_instance(self) -> Versioned[str] | None:
        record = await znodes.get_or_none(self._tree, self._instance)
        if record is None:
            return None
        try:
            return Versioned(record.value.decode("ascii").strip(), record.version)
        except UnicodeDecodeError as error:
            raise MetadataFormatError(
                f"the data of {self._instance} is not ASCII text", path=self._instance
            ) from error

    async def _registered(self) -> list[str]:
        writable = await znodes.children_of(self._tree, self._available)
        read_only = await znodes.children_of(self._tree, f"{self._available}/{READ_ONLY}")
        return sorted({*writable, *read_only} - {READ_ONLY})

    async def _leaves_first(self, top: str) -> AsyncIterator[str]:
        """Yield the paths of a node and of all nodes below it, each after its children."""
        open_nodes = [(top, iter(await znodes.children_of(self._tree, top)))]
        if await self._tree.stat(top) is None:
            return
        while open_nodes:
            path, names = open_nodes[-1]
            name = next(names, None)
            if name is None:
                open_nodes.pop()
                yield path
            else:
                below = f"{path}/{name}"
                open_nodes.append((below, iter(await znodes.children_of(self._tree, below))))

    async def _delete_all(self, paths: Sequence[str]) -> int:
        """Delete nodes in this order, and return their number. Ignore nodes that do not exist."""
        try:
            await self._tree.transact([znodes.DeleteNode(path) for path in paths])
        except (znodes.TransactionFailedError, MetadataUnknownError):
            for path in paths:
                await self._delete_one(path)
        return len(paths)

    async def _delete_one(self, path: str) -> None:
        try:
            await self._tree.delete(path)
        except znodes.NodeMissingError:
            return
        except znodes.NodeNotEmptyError as error:
            raise _in_part(path) from error


async def _batches(paths: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    some: list[str] = []
    async for path in paths:
        some.append(path)
        if len(some) >= DELETIONS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _original(instance: str) -> str:
    """Return the instance id from the data of INSTANCEID, also during a deletion."""
    return instance.removeprefix(DELETING)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _in_part(path: str) -> MetadataVersionError:
    return MetadataVersionError(
        f"another program has just created a node below {path}, so the cluster is deleted only in "
        "part: stop this program, and run the command again",
        path=path,
        definite=False,
    )


def _exists(root: str, why: str) -> MetadataError:
    return MetadataError(
        f"a cluster exists at {root}: {why}; nothing was changed. `ledgerlog cluster info` shows "
        "it. Choose another path in the metadata service URI for a new cluster",
        root=root,
    )
